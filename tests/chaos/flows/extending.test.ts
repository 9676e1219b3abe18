/**
 * A member adds five others and one after them to its flow, and its worker is killed instead of sending its n-th
 * statement, for every n. In the end each exists once and has run once.
 */
import { beforeAll, expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import { AGAIN, newKind, useCrew } from '../../worker/crew.ts';
import {
  createEffects,
  inTurns,
  LEASE_MS,
  startTaskProcess,
  timeFor,
  type TaskProcess,
} from '../steps/task-processes.ts';

const PLACES = 3;
/** About as many as a whole run has statements, and a few around it. */
const PROCESSES = 20;
const PARTS = [0, 1, 2, 3, 4];
const crew = useCrew();

beforeAll(() => createEffects(crew.database));

interface Killed {
  kind: string;
  flowId: string;
  process: TaskProcess;
  /** Members that existed when the worker was dead. */
  members: number;
}

/** Runs until it is killed or, without a fatal statement, until it is done. */
async function runDoomed(engine: Connection, childKind: string, dieAt?: number): Promise<Killed> {
  const kind = newKind();
  const { flowId, members } = await engine.flows.submit({
    name: 'growing',
    members: [{ name: 'extender', kind, policy: AGAIN }],
  });
  const process = startTaskProcess({
    url: crew.database.url,
    mode: 'extender',
    kinds: [kind],
    childKind,
    name: 'doomed',
    counted: true,
    ...(dieAt === undefined ? {} : { dieAt }),
  });
  const extender = members['extender']!;
  await Promise.race([process.ended(), engine.executions.wait(extender).catch(() => undefined)]);
  const fate = process.fate ?? (await engine.executions.result(extender)).outcome;
  expect(fate).toBe(dieAt === undefined ? 'success' : 'SIGKILL');
  await process.kill();
  return { kind, flowId, process, members: (await engine.flows.describe(flowId))!.members.length };
}

test('members are added once, wherever the worker that adds them is killed', timeFor(PROCESSES), async () => {
  const engine = await crew.connect();
  const childKind = newKind();
  // Interned before, so that every run has the same statements.
  const first = await engine.executions.submit(
    [childKind, `${childKind}.sum`].map((kind) => ({ kind, lane: 'children' })),
  );
  await engine.cancel(
    first.map(({ executionId }) => executionId),
    { reason: 'only for their routes' },
  );
  const whole = await runDoomed(engine, childKind);
  const statements = whole.process.statements();
  expect(statements.filter((text) => text.includes('ff_grow_flow('))).toHaveLength(1);
  expect(statements.at(-1)).toContain('ff_complete(');

  const killed = [whole];
  const deaths = statements.map((_, index) => index + 1);
  await inTurns(PLACES, deaths, async (dieAt) => void killed.push(await runDoomed(engine, childKind, dieAt)));
  // Some died before they had added anything, some after.
  expect(new Set(killed.map(({ members }) => members))).toEqual(new Set([1, 7]));

  await crew.database.moveClock(LEASE_MS + 1);
  startTaskProcess({
    url: crew.database.url,
    mode: 'extender',
    kinds: killed.map(({ kind }) => kind),
    childKind,
    name: 'rescuer',
  });
  const runs: string[] = [];
  const sums: number[][] = [];
  crew.work(engine, {
    poll: 50,
    handlers: {
      [childKind]: ({ payload, executionId }) => {
        runs.push(executionId);
        return payload.n * 10;
      },
      [`${childKind}.sum`]: ({ payload }) => void sums.push(payload.parts),
    },
  });
  for (const { flowId } of killed) {
    expect(await engine.flows.wait(flowId)).toBe('completed');
    const { members, edges } = (await engine.flows.describe(flowId))!;
    expect(members.map(({ name }) => name)).toEqual(['extender', ...PARTS.map((n) => `part[${n}]`), 'sum']);
    expect(edges).toHaveLength(PARTS.length);
  }
  expect(new Set(runs).size).toBe(runs.length);
  expect(sums).toEqual(killed.map(() => PARTS.map((n) => n * 10)));
});
