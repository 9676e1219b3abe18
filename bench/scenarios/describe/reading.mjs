/**
 * In a seat: runs an execution with many steps, then describes it again and again.
 */
import { connect, handle, startWorker, task } from '../../../dist/index.js';
import { percentile } from '../../harness/figures.mjs';

const INCLUDE = ['input', 'steps', 'children', 'waits', 'timeline'];
/** Everything before is cold: connections, plans, code. */
const WARM_UP = 10;

const stepping = task('stepping');

export async function readInside({ target, steps, reads }) {
  const engine = await connect({ databaseUrl: target.url });
  const worker = startWorker(engine, {
    log: 'silent',
    handlers: [
      handle(stepping, async (_input, ctx) => {
        await Promise.all(
          Array.from({ length: steps }, (_, n) => ctx.step('round', String(n), () => ({ n }))),
        );
      }),
    ],
  });
  try {
    const run = await engine.submit(stepping, {});
    await run.result();
    const times = [];
    for (let read = 0; read < WARM_UP + reads; read += 1) {
      const from = performance.now();
      const found = await engine.executions.describe(run.executionId, { include: INCLUDE });
      if (found.stepCount !== steps) throw new Error(`${found.stepCount} steps were found.`);
      if (read >= WARM_UP) times.push(performance.now() - from);
    }
    times.sort((one, other) => one - other);
    return { 'p50 ms': percentile(times, 50), 'p95 ms': percentile(times, 95) };
  } finally {
    await worker.stop();
    await engine.close();
  }
}
