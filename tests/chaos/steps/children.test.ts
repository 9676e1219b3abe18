/**
 * A parent of five children, whose worker is killed instead of sending its n-th statement, for every n: after each
 * spawn, while it awaits them, and once it is paused. In the end there are five children, and the parent has their
 * results.
 */
import { beforeAll, expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import { AGAIN, newKind, SOON, useCrew, uuidOf } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import {
  createEffects,
  inTurns,
  LEASE_MS,
  startTaskProcess,
  timeFor,
  type TaskProcess,
} from './task-processes.ts';

const PLACES = 3;
const CHILDREN = [0, 1, 2, 3, 4];
/** About as many as a whole run has statements, and a few around it. */
const PROCESSES = 20;
const crew = useCrew();

beforeAll(() => createEffects(crew.database));

interface Killed {
  kind: string;
  executionId: ExecutionId;
  process: TaskProcess;
  /** Children that existed when the worker was dead. */
  spawned: number;
}

async function childrenOf(parent: ExecutionId): Promise<{ payload: number; attempts: number }[]> {
  const found = await crew.database.query<{ payload: number; attempts: number }>(
    `SELECT e.payload::int AS payload, e.attempt_index + 1 AS attempts
     FROM ff_execution e
     WHERE e.parent_id = $1 ORDER BY 1`,
    [uuidOf(parent)],
  );
  return found.rows;
}

/** Runs until it is killed or, if it never gets that far, until its parent is paused; then it is killed anyway. */
async function runDoomed(engine: Connection, childKind: string, dieAt?: number): Promise<Killed> {
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind, policy: AGAIN });
  const process = startTaskProcess({
    url: crew.database.url,
    mode: 'parent',
    kinds: [kind],
    childKind,
    name: 'doomed',
    counted: true,
    ...(dieAt === undefined ? {} : { dieAt }),
  });
  const fate = async () => process.fate ?? (await engine.executions.describe(executionId))?.state;
  await expect.poll(fate, { ...SOON, ...timeFor(1) }).toMatch(/^(?:SIGKILL|waiting_children)$/);
  await process.kill();
  return { kind, executionId, process, spawned: (await childrenOf(executionId)).length };
}

test(
  'five children are spawned once and their results awaited, wherever the worker is killed',
  timeFor(PROCESSES),
  async () => {
    const engine = await crew.connect();
    const childKind = newKind();
    // Interned before, so that every run has the same statements.
    const first = await engine.executions.submit([childKind].map((kind) => ({ kind, lane: 'children' })));
    await engine.cancel(
      first.map(({ executionId }) => executionId),
      { reason: 'only for their routes' },
    );
    const paused = await runDoomed(engine, childKind);
    const statements = paused.process.statements();
    // The first marks the parent.
    expect(statements.filter((text) => text.includes('ff_spawn('))).toHaveLength(CHILDREN.length + 1);
    expect(statements.at(-1)).toContain('ff_pause(');

    const killed = [paused];
    const deaths = statements.map((_, index) => index + 1);
    await inTurns(
      PLACES,
      deaths,
      async (dieAt) => void killed.push(await runDoomed(engine, childKind, dieAt)),
    );
    expect(new Set(killed.map(({ spawned }) => spawned))).toEqual(new Set([...CHILDREN, CHILDREN.length]));

    await crew.database.moveClock(LEASE_MS + 1);
    startTaskProcess({
      url: crew.database.url,
      mode: 'parent',
      kinds: killed.map(({ kind }) => kind),
      childKind,
      name: 'rescuer',
    });
    const helper = crew.work(engine, { handlers: { [childKind]: ({ payload }) => payload * 10 } });
    for (const { executionId, kind } of killed) {
      expect(await engine.executions.wait(executionId)).toEqual({
        outcome: 'success',
        result: CHILDREN.map((n) => n * 10),
      });
      expect(await childrenOf(executionId)).toEqual(CHILDREN.map((payload) => ({ payload, attempts: 1 })));
      expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    }
    expect(helper.stats.completed).toBe(killed.length * CHILDREN.length);
  },
);
