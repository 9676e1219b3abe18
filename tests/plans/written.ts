/**
 * The part of the walk that writes to streams: frames of every mode, a document that grows, best-effort frames that are
 * trimmed, a repeated call and a refused one.
 */
import { randomUUID } from 'node:crypto';
import type { FrameMode } from '../../src/contract/streams.ts';
import type { Database } from '../../src/engine/database/database.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { appendFrames, type AppendAnswer, type AppendCall } from '../../src/engine/streams/streams.sql.ts';
import { callsOn, claimBatch, leaseOf, submitBatch, unknownLeases } from './workload.ts';

const KEPT = 4;

function appendCall(lease: LeaseKey, payloads: readonly [FrameMode, string][]): AppendCall {
  return {
    lease,
    appendId: randomUUID(),
    frames: payloads.map(([mode, payload]) => ({
      mode,
      encoding: mode === 'summary' ? 'json' : 'text',
      frameType: 'event',
      step: { name: 's', key: 'a', tryIndex: 0 },
      payload: Buffer.from(payload),
    })),
    ttlMs: 1,
    floor: KEPT,
    ceiling: KEPT,
    alpha: 0.2,
    maxDocumentBytes: 1_000,
  };
}

const many = (mode: FrameMode, count: number): [FrameMode, string][] =>
  Array.from({ length: count }, () => [mode, 'x']);

async function expectOutcome(outcome: string, answer: Promise<AppendAnswer>): Promise<void> {
  const told = (await answer).outcome;
  if (told !== outcome) throw new Error(`the walk was told ${told}, not ${outcome}`);
}

export async function walkWritten(database: Database): Promise<void> {
  const [stranger] = unknownLeases(1);
  await expectOutcome('not_found', appendFrames(database, appendCall(stranger!, many('durable', 1))));
  const { routes } = await submitBatch(database, { kinds: [`written-${randomUUID()}`], count: 1 });
  const lease = leaseOf((await claimBatch(database, routes, 1))[0]!);
  const first = appendCall(lease, [
    ...many('durable', 2),
    ['summary', '{"a": {"b": 1}, "list": [{"c": "__ff_null__"}]}'],
    ['summary', '{"a": null}'],
  ]);
  await expectOutcome('appended', appendFrames(database, first));
  await expectOutcome('appended', appendFrames(database, first));
  const large = JSON.stringify({ a: 'x'.repeat(first.maxDocumentBytes) });
  await expectOutcome('document_too_large', appendFrames(database, appendCall(lease, [['summary', large]])));
  await expectOutcome('appended', appendFrames(database, appendCall(lease, many('best_effort', 3 * KEPT))));
  await callsOn(database).complete([lease]);
}
