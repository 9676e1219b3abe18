/**
 * Postgres crashes between a suspension and its signal, while the signal is sent and after it, on a separate server
 * that syncs to disk as in production: the execution keeps waiting, resumes in the same attempt, and gets the signal
 * once.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import type { Claim } from '../../../src/contract/protocol.ts';
import { isEngineError } from '../../../src/contract/errors.ts';
import type { DeliverOutcome, SignalRequest } from '../../../src/contract/signals.ts';
import { startEmbedded, type EmbeddedServer } from '../../../src/embedded/index.ts';
import { migrate } from '../../../src/engine/database/migrations/migrate.ts';
import { newKind } from '../../worker/crew.ts';
import { workerPort } from '../../../src/connect/port.ts';
import { patiently } from '../../setup/patience.ts';

const LIMIT_MS = patiently(60_000);
const RECOVERED = { timeout: patiently(40_000), interval: 25 };
const LEASE_MS = 600_000;
const SECRET = 'a secret that is long enough to be one';
const GO = { kind: 'count', n: 1, by: 'signals', waitpoints: ['go'] } as const;

let parent: string;
let server: EmbeddedServer;
let engine: Connection;

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'flowfabric-told-'));
  // Run by root, the server drops to another account, which must be able to enter its directory.
  await chmod(parent, 0o755);
  server = await startEmbedded({ dataDir: join(parent, 'postgres') });
  await migrate({ databaseUrl: server.url });
  engine = await connect({ databaseUrl: server.url, poolSize: 4, signingSecret: SECRET, reconcile: 'off' });
}, LIMIT_MS);

afterAll(async () => {
  await engine?.close();
  await server.stop('immediate');
  await rm(parent, { recursive: true, force: true, maxRetries: 3 });
}, LIMIT_MS);

async function crash(): Promise<void> {
  await server.stop('immediate');
  server = await startEmbedded({ dataDir: server.dataDir });
}

/** Retries while the server is away. */
async function once<Answer>(asked: () => Promise<Answer>): Promise<Answer> {
  let answer: { value: Answer } | undefined;
  await expect
    .poll(async () => {
      try {
        answer = { value: await asked() };
      } catch (error) {
        if (!isEngineError(error) || error.code !== 'unavailable') throw error;
      }
      return answer !== undefined;
    }, RECOVERED)
    .toBe(true);
  return answer!.value;
}

async function claimOf(kind: string): Promise<Claim[]> {
  const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 5, leaseMs: LEASE_MS };
  return (await once(() => workerPort(engine).claim(request))).claims;
}

/** Suspended on a waitpoint that was opened before; returns its token. */
async function suspended(kind: string): Promise<{ claim: Claim; token: string }> {
  await once(() => engine.executions.submit({ kind }));
  const [claim] = await claimOf(kind);
  const created = await workerPort(engine).createWaitpoint(claim!, { name: 'go' });
  if (created.outcome !== 'created') throw new Error(created.outcome);
  const outcome = await workerPort(engine).suspend(claim!, {
    waits: [{ name: 'told', condition: GO, timeoutMs: LEASE_MS }],
  });
  expect(outcome).toEqual({ outcome: 'suspended', repeated: false });
  return { claim: claim!, token: created.waitpoint.token };
}

async function expectToldOnce(kind: string, { executionId }: Claim, payload: unknown): Promise<void> {
  const claims = await claimOf(kind);
  expect(claims).toMatchObject([{ executionId, attemptIndex: 0, resumed: true }]);
  const steps = await once(() => engine.executions.listSteps(executionId));
  expect(steps).toMatchObject([{ name: 'told', end: { outcome: 'satisfied', signals: [{ payload }] } }]);
  expect(await once(() => workerPort(engine).complete(claims[0]!, null))).toMatchObject({
    outcome: 'completed',
  });
}

test(
  'an execution suspended during a Postgres crash gets its signal afterwards, and the signal survives the next crash',
  { timeout: LIMIT_MS },
  async () => {
    const kind = newKind();
    const { claim, token } = await suspended(kind);
    await crash();
    expect(await once(() => engine.executions.describe(claim.executionId))).toMatchObject({
      state: 'suspended',
    });
    // The lease holder may not know whether its suspend succeeded.
    const again = { waits: [{ name: 'told', condition: GO, timeoutMs: LEASE_MS }] };
    expect(await once(() => workerPort(engine).suspend(claim, again))).toEqual({
      outcome: 'suspended',
      repeated: true,
    });
    const signal: SignalRequest = { token, payload: { yes: 1 }, idempotencyKey: 'k' };
    const told = await once(() => engine.signal(signal));
    expect(told).toMatchObject({ outcome: 'accepted', effect: 'resumed' });
    await crash();
    expect(await once(() => engine.signal(signal))).toEqual({ ...told, outcome: 'duplicate' });
    await expectToldOnce(kind, claim, { yes: 1 });
  },
);

test('a signal sent while Postgres crashes, and sent again, counts once', { timeout: LIMIT_MS }, async () => {
  const kind = newKind();
  const waiting = [await suspended(kind), await suspended(kind), await suspended(kind)];
  const send = ({ token }: { token: string }): Promise<DeliverOutcome> =>
    once(() => engine.signal({ token, payload: 'x', idempotencyKey: 'k' }));
  const sent = waiting.map(send);
  await crash();
  const answers = await Promise.all(sent);
  for (const [index, one] of waiting.entries()) {
    expect(['accepted', 'duplicate']).toContain(answers[index]!.outcome);
    expect(await send(one)).toMatchObject({ outcome: 'duplicate', effect: 'resumed' });
  }
  const claims = await claimOf(kind);
  expect(claims.map(({ executionId }) => executionId).toSorted()).toEqual(
    waiting.map(({ claim }) => claim.executionId).toSorted(),
  );
  for (const claim of claims) {
    const steps = await engine.executions.listSteps(claim.executionId);
    expect(steps[0]!.end!.signals).toHaveLength(1);
    expect(claim).toMatchObject({ attemptIndex: 0, resumed: true });
  }
});
