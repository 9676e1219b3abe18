/**
 * Whether a filter asks for a row: each condition alone, and that several together ask for what each of them asks for.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { StoredEvent, StoredEventFilter } from './events.sql.ts';
import { matches } from './matching.ts';

const UUIDS = ['018f0000-0000-7000-8000-000000000001', '018f0000-0000-7000-8000-000000000002'] as const;

const EVERYTHING: StoredEventFilter = {
  families: null,
  types: null,
  namespace: null,
  tags: null,
  kind: null,
  lane: null,
  execution: null,
  flow: null,
  partitions: null,
};

const ROW: StoredEvent = {
  position: 1n,
  family: 'lease',
  type: 'acquired',
  occurredAtMs: 1,
  uuid: UUIDS[0],
  partition: 7,
  flowUuid: UUIDS[1],
  attemptIndex: 0,
  leaseEpoch: 1,
  workerInstanceId: 'w1',
  namespace: 'n',
  kind: 'k',
  lane: 'l',
  tags: { team: 'a', empty: '' },
  detail: null,
};
/** Of a lane: what is said of the lane is in the detail, and no filter of executions asks for it. */
const OF_NO_EXECUTION: StoredEvent = {
  ...ROW,
  family: 'operator',
  type: 'lane_paused',
  uuid: null,
  partition: null,
  flowUuid: null,
  namespace: '',
  kind: null,
  lane: null,
  tags: {},
  detail: { lane: 'l' },
};

const ASKED: [Partial<StoredEventFilter>, boolean][] = [
  [{}, true],
  [{ families: ['worker', 'lease'] }, true],
  [{ families: ['worker'] }, false],
  [{ types: ['renewed', 'acquired'] }, true],
  [{ types: ['renewed'] }, false],
  [{ namespace: 'n' }, true],
  [{ namespace: 'N' }, false],
  [{ tags: { team: 'a' } }, true],
  [{ tags: { team: 'a', empty: '' } }, true],
  [{ tags: { team: 'b' } }, false],
  [{ tags: { team: 'a', other: '' } }, false],
  [{ tags: { toString: 'a' } }, false],
  [{ kind: 'k' }, true],
  [{ kind: 'l' }, false],
  [{ lane: 'l' }, true],
  [{ lane: 'k' }, false],
  [{ execution: { uuid: UUIDS[0], partition: 7 } }, true],
  [{ execution: { uuid: UUIDS[1], partition: 7 } }, false],
  [{ execution: { uuid: UUIDS[0], partition: 8 } }, false],
  [{ flow: { uuid: UUIDS[1], partition: 7 } }, true],
  [{ flow: { uuid: UUIDS[0], partition: 7 } }, false],
  [{ flow: { uuid: UUIDS[1], partition: 8 } }, false],
  [{ partitions: [6, 7] }, true],
  [{ partitions: [6] }, false],
];

describe('a filter', () => {
  it.each(ASKED)('%j of an event of an execution: %s', (members, asked) => {
    expect(matches({ ...EVERYTHING, ...members }, ROW)).toBe(asked);
  });

  it.each(ASKED)('%j, which asks for something about executions, lets the others be', (members) => {
    const { families: _, types: __, ...ofExecutions } = members;
    const asksNothing = Object.keys(ofExecutions).length === 0;
    expect(matches({ ...EVERYTHING, ...ofExecutions }, OF_NO_EXECUTION)).toBe(asksNothing);
  });

  it('asks for what each of its conditions asks for', () => {
    const few = <Value>(...values: Value[]): fc.Arbitrary<Value> => fc.constantFrom(...values);
    const id = fc.record({ uuid: few(...UUIDS), partition: few(7, 8) });
    const anyRow = fc.record({
      family: few('lease', 'completion'),
      type: few('acquired', 'expired'),
      namespace: few('n', 'm', ''),
      uuid: few(...UUIDS, null),
      flowUuid: few(...UUIDS, null),
      partition: few(7, 8, null),
      kind: few('k', null),
      lane: few('l', 'm', null),
      tags: fc.dictionary(few('team', '__proto__', 'x'), few('a', 'b'), { noNullPrototype: true }),
    });
    const anyFilter = fc.record({
      families: few(null, ['lease'], ['completion', 'lease']),
      types: few(null, ['acquired'], ['expired']),
      namespace: few(null, 'n', 'm'),
      tags: fc.option(fc.dictionary(few('team', '__proto__', 'x'), few('a', 'b'), { noNullPrototype: true })),
      kind: few(null, 'k'),
      lane: few(null, 'l', 'm'),
      execution: fc.option(id),
      flow: fc.option(id),
      partitions: few(null, [7], [7, 8], [9]),
    });
    fc.assert(
      fc.property(anyFilter, anyRow, (filter, members) => {
        const row = { ...ROW, ...members };
        const alone = Object.entries(filter).map(([name, value]) =>
          matches({ ...EVERYTHING, [name]: value }, row),
        );
        expect(matches(filter, row)).toBe(alone.every(Boolean));
      }),
    );
  });
});
