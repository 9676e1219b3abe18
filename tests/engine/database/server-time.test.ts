/**
 * The database's clock as the engine returns it: the one that stamps executions.
 */
import { expect, it } from 'vitest';
import { useBench } from '../../conformance/open.ts';

const bench = useBench();

it('the server time is the clock that stamps executions', async () => {
  const before = await bench.engine.upkeep.serverTimeMs();
  await bench.database.moveClock(86_400_000);
  const { createdAtMs } = await bench.snapshot(await bench.submit({}));
  const after = await bench.engine.upkeep.serverTimeMs();
  expect(createdAtMs - before).toBeGreaterThanOrEqual(86_400_000);
  expect(after).toBeGreaterThanOrEqual(createdAtMs);
});
