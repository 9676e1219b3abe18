/**
 * Statements that commit while their answer is lost with the connection: the engine sends them again, and the caller
 * gets, and others are notified of, what the first try did.
 */
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import pg from 'pg';
import type { Hint } from '../../../src/contract/protocol.ts';
import { openEngine, type OpenedEngine } from '../../../src/engine/open.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';

let database: TestDatabase;
let pool: pg.Pool;
let opened: OpenedEngine;
/** The answer to the next statement that contains this is lost. */
let lost: string | undefined;
const hints: Hint[] = [];

beforeAll(async () => {
  database = await testDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  opened = await openEngine({
    pool: {
      connect: () => pool.connect(),
      async query(statement: { text: string }) {
        const answer = await pool.query(statement);
        if (lost === undefined || !statement.text.includes(lost)) return answer;
        lost = undefined;
        throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
      },
    } as never,
  });
  // Its first submit makes a kind known in a statement of its own.
  await opened.engine.executions.submit({ kind: 'of-a-flow' });
  vi.spyOn(opened.context.doorbell, 'ring').mockImplementation((hint) => void hints.push(hint));
});
afterAll(async () => {
  await opened.engine.close();
  await pool.end();
  await database.drop();
});
beforeEach(() => {
  hints.length = 0;
});

const CLAIM = { workerId: 'w', workerInstanceId: 'w-1', limit: 1, leaseMs: 30_000 };

it('a flow is submitted, not a duplicate, and its members are announced', async () => {
  const { flows } = opened.engine;
  lost = 'ff_submit_flow(';
  const members = [{ name: 'a', kind: 'of-a-flow' }];
  const { outcome, flowId } = await flows.submit({ name: 'f', members });
  expect(outcome).toBe('submitted');
  expect(lost).toBeUndefined();
  expect(hints).toMatchObject([{ routes: 'all' }]);
  expect(await flows.submit({ name: 'f', flowId, members })).toMatchObject({ outcome: 'duplicate', flowId });
});

it('members are added, and are duplicates only when they are added again', async () => {
  const { flows } = opened.engine;
  const { flowId } = await flows.create({ name: 'f' });
  const members = [{ name: 'a', kind: 'of-a-flow' }];
  lost = 'ff_grow_flow(';
  expect(await flows.addMembers(flowId, members)).toMatchObject({ outcome: 'submitted' });
  expect(lost).toBeUndefined();
  expect(await flows.addMembers(flowId, members)).toMatchObject({ outcome: 'duplicate' });
});

it('a signal is accepted, and what it resumes is announced', async () => {
  const { executions, waitpoints, worker } = opened.engine;
  const { executionId } = await executions.submit({ kind: 'signalled' });
  const { claims } = await worker.claim({ ...CLAIM, kinds: ['signalled'] });
  const condition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['a'] } as const;
  await worker.suspend(claims[0]!, { waits: [{ name: 'a', condition }] });
  hints.length = 0;
  lost = 'ff_deliver_signals(';
  expect(await waitpoints.approve(executionId, 'a', { by: 'me' })).toMatchObject({
    outcome: 'accepted',
    effect: 'resumed',
  });
  expect(lost).toBeUndefined();
  expect(hints).toMatchObject([{ routes: 'all' }]);
});

it('what an unanswered claim resumed is announced when its leases are found', async () => {
  const { executions, worker } = opened.engine;
  const request = { ...CLAIM, kinds: ['paused'] };
  const { executionId } = await executions.submit({ kind: 'paused' });
  const { claims } = await worker.claim(request);
  await worker.pause(claims[0]!, { wakeInMs: 1_000 });
  await database.moveClock(1_000);
  await worker.fireTimers();
  lost = 'ff_claim';
  await expect(worker.claim(request)).rejects.toMatchObject({ code: 'unavailable' });
  hints.length = 0;
  expect((await worker.claim(request)).claims).toMatchObject([{ executionId }]);
  expect(hints).toMatchObject([{ streams: [executionId.split(':').at(-1)] }]);
});
