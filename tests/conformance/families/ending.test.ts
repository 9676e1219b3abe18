/**
 * Children end with their parent, however it ends, unless they are detached; and with a retry of the parent they stay.
 */
import { describe, expect, it } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { newKind, useBench } from '../open.ts';
import { spawn, statesOf, WHY, WITH_PARENT, workLeft } from './kit.ts';

const bench = useBench();
const RETRIED = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 0 } } } as const;

const ENDS: Record<string, (parent: Claim) => Promise<unknown>> = {
  'it completes': (parent) => bench.port.complete(parent),
  'it fails': (parent) => bench.port.fail(parent, { message: 'no', retry: 'never' }),
  'it is cancelled': (parent) => bench.engine.cancel(parent.executionId, WHY),
  'its lease lapses': () => bench.loseLeases(),
  'its deadline passes': async () => {
    await bench.database.moveClock(20_000);
    await bench.port.fireTimers();
  },
};

describe('when a parent ends, its children end', () => {
  it.each(Object.keys(ENDS))('because %s', async (how) => {
    const parent = await bench.running({ policy: { deadline: 20_000 } });
    const kind = newKind();
    const [running] = await spawn(bench, parent, { kind });
    const lease = await bench.claimOne(kind, { leaseMs: 3_600_000 });
    const [waiting, delayed] = [
      (await spawn(bench, parent))[0]!,
      (await spawn(bench, parent, { delay: '1h' }))[0]!,
    ];
    await ENDS[how]!(parent);
    await bench.port.fireTimers();
    for (const child of [running!, waiting, delayed])
      expect(await bench.engine.executions.result(child)).toEqual(WITH_PARENT);
    expect(await bench.port.complete(lease)).toMatchObject({ outcome: 'not_active' });
    expect(await workLeft(bench)).toBe(0);
  });

  it('with everything below them', async () => {
    const parent = await bench.running();
    const [kind, below] = [newKind(), newKind()];
    await spawn(bench, parent, { kind }, 2);
    const [one, two] = await bench.claim({ kinds: [kind], limit: 2 });
    const grandchildren = [
      ...(await spawn(bench, one!, { kind: below }, 2)),
      ...(await spawn(bench, two!, { kind: below }, 2)),
    ];
    const [deep] = await spawn(bench, await bench.claimOne(below));
    await bench.port.complete(parent);
    for (let level = 0; level < 3; level += 1) await bench.port.fireTimers();
    for (const id of [one!.executionId, two!.executionId, ...grandchildren, deep!])
      expect(await bench.engine.executions.result(id)).toEqual(WITH_PARENT);
  });

  it('and not before: a retry and a lost lease leave them alone', async () => {
    const parent = await bench.running({ policy: RETRIED });
    const children = await spawn(bench, parent, {}, 2);
    await bench.port.fail(parent, { message: 'again' });
    await bench.port.fireTimers();
    expect(await statesOf(bench, children)).toEqual(['waiting', 'waiting']);
    const next = await bench.claimOne(parent.kind);
    await bench.port.release(next);
    const last = await bench.claimOne(parent.kind);
    expect(await statesOf(bench, children)).toEqual(['waiting', 'waiting']);
    await bench.port.complete(last);
    await bench.port.fireTimers();
    expect(await statesOf(bench, children)).toEqual(['cancelled', 'cancelled']);
  });

  it('but for those that have ended by themselves, which keep their outcome', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const [done, open] = [(await spawn(bench, parent, { kind }))[0]!, (await spawn(bench, parent))[0]!];
    await bench.port.complete(await bench.claimOne(kind), 'mine');
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    expect(await bench.engine.executions.result(done)).toEqual({ outcome: 'success', result: 'mine' });
    expect(await bench.engine.executions.result(open)).toEqual(WITH_PARENT);
  });

  it('but for detached ones, which go on; their own children end with them', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const [detached] = await spawn(bench, parent, { kind, detached: true });
    const [other] = await spawn(bench, parent);
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    expect(await statesOf(bench, [detached!, other!])).toEqual(['waiting', 'cancelled']);
    const lease = await bench.claimOne(kind);
    const [below] = await spawn(bench, lease);
    expect(await bench.port.complete(lease, 'done')).toMatchObject({ outcome: 'completed' });
    await bench.port.fireTimers();
    expect(await bench.engine.executions.result(below!)).toEqual(WITH_PARENT);
  });

  it('and the end is told like any other cancel, by the engine', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const [child] = await spawn(bench, parent, { kind });
    await bench.claimOne(kind);
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    const told = await bench.database.query(
      `SELECT family || '.' || event_type AS event, detail ->> 'revoked_by' AS by FROM ff_event
       WHERE execution_id = $1 ORDER BY ev_id`,
      [parseExecutionId(child!).uuid],
    );
    expect(told.rows).toEqual([
      { event: 'lease.acquired', by: null },
      { event: 'lease.revoked', by: 'engine' },
      { event: 'completion.cancelled', by: null },
    ]);
  });
});

describe('a parent without children that end with it', () => {
  it('leaves no work behind, and neither does one whose children are all detached', async () => {
    const alone = await bench.running();
    const parent = await bench.running();
    await spawn(bench, parent, { detached: true }, 3);
    await bench.port.complete(alone);
    await bench.port.complete(parent);
    expect(await workLeft(bench)).toBe(0);
  });

  it('is still woken by a detached one', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const executionIds = await spawn(bench, parent, { kind, detached: true });
    await bench.port.pause(parent, { children: { executionIds, needed: 1 } });
    await bench.port.complete(await bench.claimOne(kind));
    await bench.port.fireTimers();
    expect(await bench.claimOne(parent.kind)).toMatchObject({ executionId: parent.executionId });
  });
});

describe('the work on a family', () => {
  it('is found by the reconcilers when nobody fires timers', async () => {
    const parent = await bench.running();
    const children = await spawn(bench, parent, {}, 3);
    await bench.port.complete(parent);
    expect(await statesOf(bench, children)).toEqual(['waiting', 'waiting', 'waiting']);
    await bench.reconcile();
    expect(await statesOf(bench, children)).toEqual(['cancelled', 'cancelled', 'cancelled']);
    expect(await workLeft(bench)).toBe(0);
  });

  it('outlives its parent: the children of one that was forgotten end too', async () => {
    const parent = await bench.running({ policy: { retention: 0 } });
    const [child] = await spawn(bench, parent);
    await bench.port.complete(parent);
    await bench.database.query('SELECT * FROM ff_forget($1, $2, 0, 0)', [
      [parseExecutionId(parent.executionId).uuid],
      [parseExecutionId(parent.executionId).partition],
    ]);
    expect(await bench.engine.executions.describe(parent.executionId)).toBeNull();
    await bench.port.fireTimers();
    expect(await bench.engine.executions.result(child!)).toEqual(WITH_PARENT);
    expect(await workLeft(bench)).toBe(0);
  });

  it('leaves a child that somebody holds for later, and ends the others', async () => {
    const parent = await bench.running();
    const children = (await spawn(bench, parent, {}, 3)).toSorted();
    await bench.port.complete(parent);
    const holder = await bench.database.connect();
    await holder.query('BEGIN');
    await holder.query('SELECT 1 FROM ff_execution WHERE execution_id = $1 FOR KEY SHARE', [
      parseExecutionId(children[0]!).uuid,
    ]);
    await bench.port.fireTimers();
    expect(await statesOf(bench, children)).toEqual(['waiting', 'cancelled', 'cancelled']);
    expect(await workLeft(bench)).toBe(1);
    await holder.query('COMMIT');
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    expect(await statesOf(bench, children)).toEqual(['cancelled', 'cancelled', 'cancelled']);
    expect(await workLeft(bench)).toBe(0);
  });
});
