/**
 * Cursors that do not belong to the list or the bulk verb they are given to: refused before anything is written.
 */
import { describe, expect, it } from 'vitest';
import type { BulkRequest, ExecutionFilter } from '../../../src/contract/operations.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { expectRefused, type Values } from '../refused.ts';

const bench = useBench();
const INVALID = { code: 'invalid_cursor', field: 'cursor' } as const;
const CANCEL = { verb: 'cancel', reason: 'why', filter: { kind: 'k' } } as const;

/** A bulk starts when its first chunk is requested. */
function first(request: BulkRequest): Promise<unknown> {
  return bench.engine.executions.bulk(request)[Symbol.asyncIterator]().next();
}

const encoded = (parts: unknown): string => Buffer.from(JSON.stringify(parts)).toString('base64url');

const CURSORS: Values = {
  null: null,
  'a number': 5,
  empty: '',
  'not base64url': '*',
  'not JSON': Buffer.from('x').toString('base64url'),
  'not a list': encoded({ a: 1 }),
  'of another version': encoded([2, 'x', 0]),
  'of another filter': encoded([1, 'x', 0]),
  'too long': encoded([1, 'x'.repeat(1_000)]),
};

describe.each(Object.keys(CURSORS))('a cursor that is %s', (name) => {
  const cursor = CURSORS[name] as string;

  it('is refused by list', () =>
    expectRefused(bench.database, () => bench.engine.executions.list({ cursor }), INVALID));

  it('is refused by bulk', () => expectRefused(bench.database, () => first({ ...CANCEL, cursor }), INVALID));
});

describe('a cursor', () => {
  /** A cursor of a list that has more than one page. */
  async function cursorOf(filter: ExecutionFilter): Promise<string> {
    const { cursor } = await bench.engine.executions.list({ filter, limit: 1 });
    if (cursor === null) throw new Error('the list has one page only');
    return cursor;
  }

  it('is refused with every other filter, and accepted with its own', async () => {
    const [kind, lane] = [newKind(), newKind()];
    await bench.engine.executions.submit([
      { kind, lane },
      { kind, lane },
      { kind, lane },
    ]);
    const cursor = await cursorOf({ kind });
    const others: ExecutionFilter[] = [
      { kind: 'other' },
      { lane: kind },
      { kind, lane },
      { kind, states: ['waiting'] },
      { kind, createdFromMs: 1 },
    ];
    for (const filter of others) {
      await expect(bench.engine.executions.list({ filter, cursor })).rejects.toMatchObject(INVALID);
      await expect(first({ ...CANCEL, filter, cursor })).rejects.toMatchObject(INVALID);
    }
    await expect(bench.engine.executions.list({ cursor })).rejects.toMatchObject(INVALID);
    expect((await bench.engine.executions.list({ filter: { kind }, cursor })).executions).toHaveLength(2);
  });

  it('whose position is not one of its list is refused', async () => {
    const kind = newKind();
    await bench.engine.executions.submit([{ kind }, { kind }]);
    const [version, hash, source, ...key] = JSON.parse(
      Buffer.from(await cursorOf({ kind }), 'base64url').toString(),
    ) as unknown[];
    const places: unknown[][] = [
      [1, ...key],
      [-1, ...key],
      ['0', ...key],
      [0.5, ...key],
      [source, key[0]],
      [source, key[1], key[0]],
      [source, 1.5, key[1]],
      [source, 2 ** 60, key[1]],
      [source, key[0], 'x'],
      [source, ...key, 1],
      [source, null, null],
    ];
    for (const place of places) {
      const cursor = encoded([version, hash, ...place]);
      await expect(bench.engine.executions.list({ filter: { kind }, cursor })).rejects.toMatchObject(INVALID);
    }
  });
});
