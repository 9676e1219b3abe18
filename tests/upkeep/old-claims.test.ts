/**
 * The sweep of claims, in small batches: claims with leases that cannot be ended yet stay due, and keep no others from
 * being looked into.
 */
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import type { EngineContext } from '../../src/engine/kit/context.ts';
import { openEngine } from '../../src/engine/open.ts';
import { expiredLeases } from '../../src/engine/upkeep/expired-leases.ts';
import { oldClaims } from '../../src/engine/upkeep/old-claims.ts';
import { runPass } from '../../src/engine/upkeep/pass.ts';
import type { Claim } from '../../src/protocol/index.ts';
import { LEASE_MS, useBench } from '../conformance/open.ts';

const bench = useBench();
const signal = new AbortController().signal;
const BATCH = 2;
let context: EngineContext;
let close: () => Promise<void>;

beforeAll(async () => {
  const opened = await openEngine({ databaseUrl: bench.database.url, listen: 'off', poolSize: 2 });
  context = opened.context;
  close = () => opened.engine.close();
  // Executions of this namespace cannot be changed any more.
  await bench.database.query(`
    CREATE FUNCTION refuse_stuck() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'stuck' USING ERRCODE = 'ZZ001'; END $$;
    CREATE TRIGGER refuse_stuck BEFORE UPDATE ON ff_execution FOR EACH ROW
      WHEN (OLD.namespace = 'stuck' AND OLD.claim_no IS NOT NULL) EXECUTE FUNCTION refuse_stuck()`);
});

beforeEach(async () => {
  await bench.database.query('TRUNCATE ff_execution, ff_ready, ff_grant, ff_attempt_history, ff_setback');
});

afterAll(() => close?.());

/** As many claims of one execution each, in the order of their leases. */
async function claims(count: number, namespace: string): Promise<Claim[]> {
  const running: Claim[] = [];
  for (let made = 0; made < count; made += 1) {
    running.push(await bench.running({ namespace }));
    await bench.database.moveClock(1);
  }
  return running;
}

async function claimsLeft(): Promise<number> {
  const { rows } = await bench.database.query<{ left: number }>(
    'SELECT count(*)::integer AS left FROM ff_grant',
  );
  return rows[0]!.left;
}

async function loseLeases(): Promise<void> {
  await bench.database.moveClock(LEASE_MS);
  await runPass(context, expiredLeases, 1_000, signal);
}

it('more claims than a batch whose leases cannot be ended do not keep younger ones', async () => {
  await claims(2 * BATCH, 'stuck');
  await claims(3, 'other');
  await loseLeases();
  expect(await oldClaims({ batch: BATCH, batches: 6 }).run(context, signal)).toBe(3);
  expect(await claimsLeft()).toBe(2 * BATCH);
});

it('younger claims with leases are looked into again when the first of them would lapse', async () => {
  await claims(2 * BATCH, 'stuck');
  const [renewed] = await claims(1, 'other');
  await bench.port.renew([renewed!], 3 * LEASE_MS);
  await loseLeases();
  const sweep = oldClaims({ batch: BATCH, batches: 6 });
  expect(await sweep.run(context, signal)).toBe(1);
  await bench.port.complete(renewed!);
  expect(await sweep.run(context, signal)).toBe(0);
  await bench.database.moveClock(3 * LEASE_MS);
  expect(await sweep.run(context, signal)).toBe(1);
  expect(await claimsLeft()).toBe(2 * BATCH);
});

it('a pass that reached its limit is continued by the next, which starts over at the end', async () => {
  await claims(2 * BATCH, 'stuck');
  await claims(1, 'other');
  await loseLeases();
  const sweep = oldClaims({ batch: BATCH, batches: 1 });
  expect([await sweep.run(context, signal), await sweep.run(context, signal)]).toEqual([0, 0]);
  expect(await sweep.run(context, signal)).toBe(1);
  await bench.database.query('ALTER TABLE ff_execution DISABLE TRIGGER refuse_stuck');
  onTestFinished(async () => {
    await bench.database.query('ALTER TABLE ff_execution ENABLE TRIGGER refuse_stuck');
  });
  await loseLeases();
  expect([await sweep.run(context, signal), await sweep.run(context, signal)]).toEqual([BATCH, BATCH]);
  expect(await claimsLeft()).toBe(0);
});

it('claims of the same millisecond are all looked into, whatever the batch', async () => {
  for (let made = 0; made < 2 * BATCH; made += 1) await bench.running({ namespace: 'stuck' });
  for (let made = 0; made < 3; made += 1) await bench.running({ namespace: 'other' });
  await loseLeases();
  await bench.database.query('UPDATE ff_grant SET look_at_ms = 7');
  expect(await oldClaims({ batch: BATCH, batches: 6 }).run(context, signal)).toBe(3);
});
