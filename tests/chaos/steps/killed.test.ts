/**
 * A worker is killed instead of sending its n-th statement, for every n of a task with ten steps: another one finishes,
 * and no recorded step runs again.
 */
import { beforeAll, expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { Json } from '../../../src/contract/json.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import { AGAIN, newKind, resultOf, useCrew } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import {
  createEffects,
  effectsOf,
  inTurns,
  LEASE_MS,
  startTaskProcess,
  timeFor,
  type TaskProcess,
} from './task-processes.ts';

const PLACES = 3;
/** Statements of a whole run: as many processes are killed. */
const STATEMENTS = 27;
const STEPS = Array.from({ length: 10 }, (_, n) => String(n));
const IN_TRANSACTION = ['4', '9'];
/** How often a whole run sends each. */
const EXPECTED: [RegExp, number][] = [
  [/AS "timerId"/, 1],
  [/ff_claim\(/, 1],
  [/^INSERT INTO public.effect/, 10],
  [/^SELECT ordinal .* FROM "flowfabric"\.ff_record_steps\(/, 8],
  // In a transaction of user code.
  [/^SELECT to_json\(/, 2],
  [/BEGIN ISOLATION/, 2],
  [/COMMIT$/, 2],
  [/ff_complete\(/, 1],
];
const crew = useCrew();

beforeAll(() => createEffects(crew.database));

interface Killed {
  /** Unique, so that each process claims its own execution. */
  kind: string;
  executionId: ExecutionId;
  process: TaskProcess;
  /** Values by key when the worker was dead. */
  stored: Map<string, Json>;
}

/** Runs until it is killed or, without a fatal statement, until it is done. */
async function runDoomed(engine: Connection, dieAt?: number): Promise<Killed> {
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind, policy: AGAIN });
  const process = startTaskProcess({
    url: crew.database.url,
    mode: 'tenSteps',
    kinds: [kind],
    name: 'doomed',
    counted: true,
    ...(dieAt === undefined ? {} : { dieAt }),
  });
  // Whichever comes first; a process that should have died but did not has ended its execution.
  await Promise.race([process.ended(), engine.executions.wait(executionId).catch(() => undefined)]);
  expect(process.fate ?? (await resultOf(engine, executionId))).toBe(
    dieAt === undefined ? 'success' : 'SIGKILL',
  );
  await process.kill();
  const steps = await engine.executions.listSteps(executionId);
  return { kind, executionId, process, stored: new Map(steps.map((step) => [step.key, step.value])) };
}

/** A step stored at the kill ran once and its value is in the result; at most one other was started twice. */
async function checkRescued(engine: Connection, { kind, executionId, stored }: Killed): Promise<void> {
  const values = new Map(
    (await engine.executions.listSteps(executionId)).map(({ key, value }) => [key, value]),
  );
  expect([...values.keys()].toSorted()).toEqual(STEPS);
  expect(await engine.executions.result(executionId)).toEqual({
    outcome: 'success',
    result: STEPS.map((key) => values.get(key)),
  });
  const effects = await effectsOf(crew.database, executionId);
  for (const [key, value] of stored) {
    expect(effects.filter(({ step }) => step === key)).toEqual([{ id: value, step: key, attempt: 0 }]);
    expect(values.get(key)).toBe(value);
  }
  const again = STEPS.filter((key) => effects.filter(({ step }) => step === key).length > 1);
  expect(again.length).toBeLessThanOrEqual(1);
  // The transactional effect of a step happens once even then.
  expect(again.filter((key) => IN_TRANSACTION.includes(key))).toEqual([]);
  expect(effects).toHaveLength(STEPS.length + again.length);
  expect(await faultsOf(crew.database.url, kind)).toEqual([]);
}

test(
  'no finished step runs again, no matter at which statement its worker is killed',
  timeFor(STATEMENTS + 2),
  async () => {
    const engine = await crew.connect();
    const statements = (await runDoomed(engine)).process.statements();
    const counted = EXPECTED.map(([part]) => [part, statements.filter((text) => part.test(text)).length]);
    expect(counted).toEqual(EXPECTED);
    expect(statements).toHaveLength(STATEMENTS);

    const killed: Killed[] = [];
    const deaths = statements.map((_, index) => index + 1);
    await inTurns(PLACES, deaths, async (dieAt) => void killed.push(await runDoomed(engine, dieAt)));
    // Every possible number of finished steps was left behind by some process.
    expect(new Set(killed.map(({ stored }) => stored.size))).toEqual(
      new Set([...STEPS.keys(), STEPS.length]),
    );

    await crew.database.moveClock(LEASE_MS + 1);
    startTaskProcess({
      url: crew.database.url,
      mode: 'tenSteps',
      kinds: killed.map(({ kind }) => kind),
      name: 'rescuer',
    });
    await Promise.all(killed.map(({ executionId }) => engine.executions.wait(executionId)));
    for (const one of killed) await checkRescued(engine, one);
  },
);
