/**
 * Many executions wait for one topic. Something is published while some of them wait, some begin to and some have not
 * begun; the process that published stops in the middle of telling them, and others finish. Everybody receives it, once.
 * `npm run soak:topics` does the same with 100,000.
 */
import { writeFile } from 'node:fs/promises';
import { expect, test, vi } from 'vitest';
import type { Claim } from '../../../src/protocol/index.ts';
import { LIMITS } from '../../../src/contract/limits.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { picks } from '../../setup/chance.ts';
import { plainDatabase } from '../../setup/database.ts';
import { patiently } from '../../setup/patience.ts';

const WAITERS = Number(process.env['FLOWFABRIC_TEST_WAITERS'] ?? 2_000);
const SEED = Number(process.env['FLOWFABRIC_TEST_SEED'] ?? 20_261);
/** Where a soak writes what it measured. */
const RESULT = process.env['FLOWFABRIC_SOAK_RESULT'];
const BATCH = 1_000;
const AT_ONCE = 16;
const LEASE_MS = 3_600_000;
const PATIENCE = { timeout: patiently(900_000), interval: 100 };
const TOPIC = 'prices.changed';

// Without the assertions, which check every row that changes.
const bench = useBench(plainDatabase);

async function numbers(text: string): Promise<Record<string, number>> {
  const { rows } = await bench.database.query<Record<string, number>>(text);
  return rows[0]!;
}

const suspend = (claim: Claim) =>
  bench.port.suspend(claim, { waits: [{ name: 't', condition: { kind: 'topic', topic: TOPIC } }] });

/** Suspends all of them, a few at once; `begun` is called after each with how many there are. */
async function suspendAll(claims: Claim[], begun: (count: number) => void): Promise<void> {
  let next = 0;
  let count = 0;
  const work = async (): Promise<void> => {
    for (let claim = claims[next++]; claim !== undefined; claim = claims[next++]) {
      await suspend(claim);
      begun((count += 1));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function claimAll(kind: string): Promise<Claim[]> {
  for (let first = 0; first < WAITERS; first += BATCH)
    await bench.engine.executions.submit(
      Array.from({ length: Math.min(BATCH, WAITERS - first) }, () => ({ kind })),
    );
  const claims: Claim[] = [];
  while (claims.length < WAITERS)
    claims.push(...(await bench.claim({ kinds: [kind], limit: BATCH, leaseMs: LEASE_MS })));
  return claims;
}

test(
  `each of ${WAITERS} executions that wait for a topic receives what is published, once`,
  { timeout: PATIENCE.timeout },
  async () => {
    const pick = picks(SEED);
    // After between a half and nine tenths of them have begun to wait.
    const publishAfter = Math.floor(WAITERS * (0.5 + pick(40) / 100));
    const claims = await claimAll(newKind());
    const publisher = await bench.another();
    let stopped: Promise<void> | undefined;
    let publishedAt = 0;
    await suspendAll(claims, (count) => {
      if (count !== publishAfter) return;
      publishedAt = performance.now();
      stopped = publisher.publish(TOPIC, { seed: SEED }).then(() => publisher.close());
    });
    await stopped;
    const left = await numbers('SELECT count(*)::int AS waits FROM ff_topic_wait');
    const others = await bench.another({ reconcile: 'on' });
    await vi.waitFor(async () => {
      const open = await numbers(
        `SELECT (SELECT count(*)::int FROM ff_topic_wait) + (SELECT count(*)::int FROM ff_published WHERE NOT is_told) AS n`,
      );
      expect(open['n']).toBe(0);
    }, PATIENCE);
    const toldMs = performance.now() - publishedAt;
    await others.close();
    const found = await numbers(
      `SELECT (SELECT count(*)::int FROM ff_step WHERE kind = 'wait' AND value #>> '{topic,data,seed}' = '${SEED}') AS received,
              (SELECT count(*)::int FROM ff_suspension) AS suspended,
              (SELECT count(*)::int FROM ff_event WHERE event_type = 'suspended') AS "onceSuspended",
              (SELECT count(*)::int FROM ff_event WHERE event_type = 'resumed') AS resumed,
              (SELECT count(DISTINCT execution_id)::int FROM ff_event WHERE event_type = 'resumed') AS "resumedOnce",
              (SELECT max(told)::int FROM (
                 SELECT sum(n) AS told FROM ff_event_pack WHERE family = 'signal' GROUP BY xid) x) AS "mostAtOnce"`,
    );
    expect(found).toMatchObject({ received: WAITERS, suspended: 0 });
    expect(found['resumed']).toBe(found['onceSuspended']);
    expect(found['resumedOnce']).toBe(found['onceSuspended']);
    expect(found['onceSuspended']).toBeGreaterThanOrEqual(publishAfter);
    expect(found['mostAtOnce']).toBeLessThanOrEqual(LIMITS.topicTold);
    if (RESULT === undefined) return;
    const measured = {
      waiters: WAITERS,
      seed: SEED,
      published_after: publishAfter,
      suspended: found['onceSuspended'],
      received: found['received'],
      resumed_twice: found['resumed']! - found['resumedOnce']!,
      left_by_publisher: left['waits'],
      most_in_one_transaction: found['mostAtOnce'],
      seconds_until_all_told: Math.round(toldMs / 100) / 10,
    };
    await writeFile(RESULT, `${JSON.stringify({ 'soak:topics': measured }, null, 2)}\n`);
  },
);
