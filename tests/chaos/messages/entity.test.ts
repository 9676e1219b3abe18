/**
 * An entity that continues as a new run after every hundred messages, and whose worker is killed at message 99 of a run:
 * a small part of `npm run soak:messages`. Nothing is lost, and what is left of it does not grow.
 */
import { beforeAll, expect, test } from 'vitest';
import { AGAIN, newKind, useCrew, uuidOf } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import { createEffects, LEASE_MS, startTaskProcess, timeFor } from '../steps/task-processes.ts';

const MESSAGES = 700;
const RUN_LENGTH = 100;
/** Message 99 of the fourth run. */
const KILLED_AT = 3 * RUN_LENGTH + RUN_LENGTH - 1;
const crew = useCrew();

beforeAll(() => createEffects(crew.database));

test('handles every message in order, though its worker is killed', timeFor(4), async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const { executionId: id } = await engine.executions.submit({ kind, policy: AGAIN });
  const numbers = Array.from({ length: MESSAGES }, (_, n) => n + 1);
  await Promise.all(numbers.map((n) => engine.send(id, 'in', n)));
  await engine.send(id, 'in', 'stop');
  const entity = { url: crew.database.url, mode: 'inbox', kinds: [kind], runLength: RUN_LENGTH } as const;
  const doomed = startTaskProcess({ ...entity, name: 'doomed', dieAtMessage: KILLED_AT });
  await doomed.ended();
  expect(doomed.fate).toBe('SIGKILL');
  await crew.database.moveClock(LEASE_MS + 1);
  startTaskProcess({ ...entity, name: 'rescuer' });
  expect(await engine.executions.wait(id)).toEqual({ outcome: 'success', result: numbers });
  const { runs, stepCount } = (await engine.executions.describe(id, { include: ['runs'] }))!;
  expect(runs.items.map(({ run, messages, attempts }) => [run, messages, attempts])).toEqual(
    numbers.slice(0, MESSAGES / RUN_LENGTH).map((n) => [BigInt(n), RUN_LENGTH, n === 4 ? 2 : 1]),
  );
  // Only those of the last run, which received nothing but the end.
  expect(stepCount).toBe(1);
  const { rows } = await crew.database.query(
    'SELECT pending, handed FROM ff_mailbox WHERE execution_id = $1',
    [uuidOf(id)],
  );
  expect(rows).toEqual([{ pending: 0, handed: 1 }]);
  expect(await faultsOf(crew.database.url, kind)).toEqual([]);
});
