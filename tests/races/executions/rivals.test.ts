/**
 * Claims that meet rivals on several routes: what a rival holds is skipped, and what is beside it is found.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect, type Connection } from '../../../src/index.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { workerPort } from '../../../src/connect/port.ts';

let database: TestDatabase;
let engine: Connection;
beforeAll(async () => {
  database = await testDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off', listen: 'off' });
});
afterAll(async () => {
  await engine.close();
  await database.drop();
});

const claim = (kinds: string[], limit: number) =>
  workerPort(engine).claim({ workerId: 'w', workerInstanceId: 'w-1', kinds, limit, leaseMs: 30_000 });

it('a claim over two routes finds the free one while a rival holds the other', async () => {
  const [held, free] = ['rival-held', 'rival-free'];
  await engine.executions.submit({ kind: held, priority: 9 });
  await engine.executions.submit(Array.from({ length: 3 }, () => ({ kind: free })));
  const rival = await database.connect();
  await rival.query('BEGIN');
  await rival.query(
    `SELECT 1 FROM ff_ready WHERE route_id = (SELECT route_id FROM ff_route WHERE kind = $1) FOR UPDATE`,
    [held],
  );
  expect((await claim([held, free], 1)).claims.map(({ kind }) => kind)).toEqual([free]);
  expect((await claim([held, free], 5)).claims.map(({ kind }) => kind)).toEqual([free, free]);
  await rival.query('ROLLBACK');
  expect((await claim([held, free], 5)).claims.map(({ kind }) => kind)).toEqual([held]);
});

it('a claim looks past locked executions', async () => {
  const kind = 'behind-locked';
  const submitted = await engine.executions.submit(Array.from({ length: 3 }, () => ({ kind })));
  const rival = await database.connect();
  await rival.query('BEGIN');
  await rival.query('SELECT 1 FROM ff_execution WHERE execution_id = ANY ($1::uuid[]) FOR UPDATE', [
    submitted.slice(0, 2).map(({ executionId }) => executionId.split('}:')[1]),
  ]);
  expect((await claim([kind], 1)).claims.map(({ executionId }) => executionId)).toEqual([
    submitted[2]!.executionId,
  ]);
  await rival.query('ROLLBACK');
});

it('repeating a release returns its first result, even when others released the attempt since', async () => {
  const kind = 'released-often';
  await engine.executions.submit({ kind });
  const first = (await claim([kind], 1)).claims[0]!;
  expect(await workerPort(engine).release(first)).toEqual({ outcome: 'released', repeated: false });
  const second = (await claim([kind], 1)).claims[0]!;
  expect(await workerPort(engine).release(second)).toEqual({ outcome: 'released', repeated: false });
  expect(await workerPort(engine).release(first)).toEqual({ outcome: 'released', repeated: true });
  expect(await workerPort(engine).release(second)).toEqual({ outcome: 'released', repeated: true });
});
