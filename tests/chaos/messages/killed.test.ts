/**
 * The worker of an inbox loop is killed instead of sending its n-th statement, for every n: every message is handled in
 * order and once, whichever run it falls into.
 */
import { beforeAll, expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import { newKind, SOON, useCrew } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import {
  createEffects,
  effectsOf,
  inTurns,
  LEASE_MS,
  startTaskProcess,
  timeFor,
  type TaskProcess,
} from '../steps/task-processes.ts';

const PLACES = 3;
const MANY = { retry: { maxRetries: 10_000, backoff: { type: 'fixed', delay: 1 } } } as const;
/** Of the test with eight senders. */
const SENDERS = 8;
const MESSAGES = 200;
const PROCESSES = 80;
const RUN_LENGTH = 20;
const crew = useCrew();

beforeAll(() => createEffects(crew.database));

interface Killed {
  kind: string;
  executionId: ExecutionId;
  process: TaskProcess;
}

function startInbox(kinds: readonly string[], runLength: number, name: string, dieAt?: number): TaskProcess {
  const counted = name === 'rescuer' ? {} : { counted: true };
  const dies = dieAt === undefined ? {} : { dieAt };
  return startTaskProcess({
    url: crew.database.url,
    mode: 'inbox',
    kinds,
    runLength,
    name,
    ...counted,
    ...dies,
  });
}

/** Three messages and the end are there from the beginning; the run continues after two. */
async function runDoomed(engine: Connection, dieAt?: number): Promise<Killed> {
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind, policy: MANY });
  for (const payload of [1, 2, 3, 'stop'])
    await engine.send(executionId, 'in', payload, { id: `m${payload}` });
  const process = startInbox([kind], 2, 'doomed', dieAt);
  await Promise.race([process.ended(), engine.executions.wait(executionId).catch(() => undefined)]);
  await process.kill();
  return { kind, executionId, process };
}

test(
  'a loop of two runs handles every message once, no matter at which statement its worker is killed',
  timeFor(24),
  async () => {
    const engine = await crew.connect();
    const statements = (await runDoomed(engine)).process.statements();
    const count = (part: RegExp) => statements.filter((text) => part.test(text)).length;
    expect([count(/ff_suspend\(/), count(/ff_record_steps\(/), count(/ff_continue\(/)]).toEqual([4, 3, 1]);
    const killed: Killed[] = [];
    const deaths = statements.map((_, index) => index + 1);
    await inTurns(PLACES, deaths, async (dieAt) => void killed.push(await runDoomed(engine, dieAt)));
    const last = new Set(killed.map(({ process }) => /ff_\w+\(/.exec(process.statements().at(-1)!)?.[0]));
    for (const name of ['ff_claim(', 'ff_suspend(', 'ff_record_steps(', 'ff_continue(', 'ff_complete('])
      expect(last).toContain(name);

    await crew.database.moveClock(LEASE_MS + 1);
    startInbox(
      killed.map(({ kind }) => kind),
      2,
      'rescuer',
    );
    for (const { executionId, kind } of killed) {
      expect(await engine.executions.wait(executionId)).toEqual({ outcome: 'success', result: [1, 2, 3] });
      const described = (await engine.executions.describe(executionId, { include: ['runs'] }))!;
      expect(described.runs.items).toMatchObject([{ run: 1n, messages: 2 }]);
      // A kill between the effect and its record is the only reason for a second effect.
      const effects = (await effectsOf(crew.database, executionId)).map(({ step }) => step);
      expect(effects.length).toBeLessThanOrEqual(4);
      expect([...new Set(effects)]).toEqual(['m1', 'm2', 'm3']);
      expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    }
  },
);

/** Sends its own messages in order, some whenever it is its turn. */
class Sender {
  readonly #engine: Connection;
  readonly #name: number;
  #sent = 0;

  constructor(engine: Connection, name: number) {
    this.#engine = engine;
    this.#name = name;
  }

  async sendNext(id: ExecutionId): Promise<void> {
    if (this.#sent >= MESSAGES / SENDERS) return;
    this.#sent += 1;
    const payload = [this.#name, this.#sent];
    expect(await this.#engine.send(id, 'in', payload)).toMatchObject({ outcome: 'sent' });
  }
}

test(
  'eight senders and a worker that is killed again and again, one statement later each time',
  timeFor(PROCESSES),
  async () => {
    const engine = await crew.connect({ reconcile: 'on' });
    const kind = newKind();
    const { executionId: id } = await engine.executions.submit({ kind, policy: MANY });
    const senders = Array.from({ length: SENDERS }, (_, name) => new Sender(engine, name));
    const isRunning = async () => (await engine.executions.describe(id))?.state === 'active';
    let kills = 0;
    for (let dieAt = 2; dieAt < 2 + MESSAGES / SENDERS; dieAt += 1) {
      // The process claims once: there is something to do by then. The others send while it works.
      await senders[0]!.sendNext(id);
      const process = startInbox([kind], RUN_LENGTH, 'doomed', dieAt);
      await Promise.all(senders.slice(1).map((sender) => sender.sendNext(id)));
      const isOver = async () =>
        process.fate !== undefined || (process.statements().length > 2 && !(await isRunning()));
      await expect.poll(isOver, { ...SOON, ...timeFor(1) }).toBe(true);
      if (process.fate === 'SIGKILL') kills += 1;
      await process.kill();
      await crew.database.moveClock(LEASE_MS + 1);
      await expect.poll(isRunning, SOON).toBe(false);
    }
    expect(kills).toBeGreaterThan(MESSAGES / SENDERS / 2);
    await engine.send(id, 'in', 'stop');
    startInbox([kind], RUN_LENGTH, 'rescuer');
    const end = await engine.executions.wait(id);
    const handled = (end as unknown as { result: [number, number][] }).result;
    expect(handled).toHaveLength(MESSAGES);
    for (let name = 0; name < SENDERS; name += 1) {
      const own = handled.filter(([sender]) => sender === name).map(([, n]) => n);
      expect(own).toEqual(Array.from({ length: MESSAGES / SENDERS }, (_, n) => n + 1));
    }
    const effects = await effectsOf(crew.database, id);
    expect(new Set(effects.map(({ step }) => step)).size).toBe(MESSAGES);
    expect(effects.length).toBeLessThanOrEqual(MESSAGES + kills);
    expect(await faultsOf(crew.database.url, kind)).toEqual([]);
  },
);
