/**
 * A thousand executions, a third of which fail at first, while worker processes are killed at random and replaced:
 * nothing is lost and nothing is done twice. The seed decides which worker is killed when, and is printed.
 */
import { expect, test } from 'vitest';
import { chance } from '../../setup/chance.ts';
import { newKind, SOON, useCrew } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import { startWorkerProcess, type WorkerProcess } from '../children.ts';
import { patiently } from '../../setup/patience.ts';

const EXECUTIONS = 1_000;
const WORKERS = 3;
const KILLS = 7;
const STORM = { timeout: patiently(30_000), interval: 10 };
const crew = useCrew();

test(
  'killing workers at random loses nothing and duplicates nothing',
  { timeout: patiently(60_000) },
  async () => {
    const seed = Number(process.env['FLOWFABRIC_TEST_SEED'] ?? Math.trunc(performance.timeOrigin));
    console.log(`FLOWFABRIC_TEST_SEED=${seed}`);
    const random = chance(seed);
    const engine = await crew.connect({ reconcile: 'on' });
    const kind = newKind();
    const submitted = await engine.executions.submit(
      Array.from({ length: EXECUTIONS }, (_, n) => ({
        kind,
        payload: { n, failures: Math.max(0, Math.trunc(random() * 4) - 1) },
        policy: { retry: { maxRetries: 1_000, backoff: { type: 'fixed', delay: 10 } } } as const,
      })),
    );
    const start = (): WorkerProcess =>
      startWorkerProcess({
        url: crew.database.url,
        kind,
        mode: 'work',
        concurrency: 20,
        leaseMs: 1_500,
        name: 'storm',
      });
    const ended = async (): Promise<number> => {
      const found = await crew.database.query<{ n: number }>(
        `SELECT count(*) AS n FROM ff_execution JOIN ff_route USING (route_id)
       WHERE kind = $1 AND lifecycle_phase = 'terminal'`,
        [kind],
      );
      return found.rows[0]!.n;
    };
    const workers = Array.from({ length: WORKERS }, start);
    for (let kill = 1; kill <= KILLS; kill += 1) {
      const at = Math.trunc(((kill - random()) / (KILLS + 1)) * EXECUTIONS);
      await expect.poll(ended, STORM).toBeGreaterThanOrEqual(at);
      const victim = Math.trunc(random() * WORKERS);
      await workers[victim]!.kill();
      workers[victim] = start();
    }
    await expect.poll(ended, STORM).toBe(EXECUTIONS);
    await Promise.all(workers.map((worker) => worker.finish()));
    expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    const found = await crew.database.query<{ n: number }>(
      `SELECT count(*) AS n FROM ff_attempt_history o JOIN ff_execution e USING (execution_id) JOIN ff_route r USING (route_id)
     WHERE r.kind = $1 AND o.terminal_outcome = 'success' AND (o.result ->> 'doubled')::int = 2 * (e.payload ->> 'n')::int`,
      [kind],
    );
    expect(found.rows[0]!.n).toBe(submitted.length);
    const takeovers = await crew.database.query<{ n: number }>(
      `SELECT count(*) AS n FROM ff_event JOIN ff_route USING (route_id)
     WHERE kind = $1 AND event_type = 'reclaimed'`,
      [kind],
    );
    // Otherwise the storm was a calm and the test has shown nothing.
    await expect.poll(() => takeovers.rows[0]!.n, SOON).toBeGreaterThan(0);
  },
);
