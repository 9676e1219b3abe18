/**
 * What an execution without a policy of its own may rely on: a worker that dies does not lose the work.
 */
import { expect, it } from 'vitest';
import { connect } from '../../../src/index.ts';
import { LEASE_MS, newKind, useBench } from '../../conformance/open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();

it('an execution without a policy survives three lost leases, and not a fourth', async () => {
  await using engine = await connect({ databaseUrl: bench.database.url, reconcile: 'off', listen: 'off' });
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind });
  for (let lost = 0; lost < 4; lost += 1) {
    expect(await bench.claimOne(kind)).toMatchObject({ attemptIndex: lost });
    await bench.database.moveClock(LEASE_MS + 1);
    await bench.reconcile();
  }
  expect(await engine.executions.result(executionId)).toMatchObject({
    outcome: 'expired',
    message: 'attempt_timeout',
  });
});

it('a policy of its own overrides the default one, option by option', async () => {
  await using engine = await connect({ databaseUrl: bench.database.url, reconcile: 'off', listen: 'off' });
  const kind = newKind();
  await engine.executions.submit([{ kind, policy: { retry: { maxRetries: 0 } } }]);
  expect(await workerPort(engine).fail(await bench.claimOne(kind), { message: 'no' })).toMatchObject({
    outcome: 'failed',
  });
  await engine.executions.submit([{ kind, policy: { maxReclaims: 1 } }]);
  const claim = await bench.claimOne(kind);
  expect(await workerPort(engine).fail(claim, { message: 'no' })).toMatchObject({
    outcome: 'retry_scheduled',
  });
});
