/**
 * The part of the walk that writes to streams: frames of every mode, a document that grows, best-effort frames that are
 * trimmed, a repeated call and a refused one.
 */
import { randomUUID } from 'node:crypto';
import type { FrameMode } from '../../src/contract/streams.ts';
import type { Database } from '../../src/engine/database/database.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { appendFrames, type AppendAnswer, type AppendCall } from '../../src/engine/streams/append.sql.ts';
import { appendToStreams } from '../../src/engine/streams/append-together.sql.ts';
import { END_PLACE } from '../../src/engine/streams/source.ts';
import { readParentEnded, recordForParent } from '../../src/engine/streams/parent.sql.ts';
import { readFrames, refoldDocument } from '../../src/engine/streams/streams.sql.ts';
import { recordSteps } from '../../src/engine/steps/steps.sql.ts';
import { spawnExecutions } from '../../src/engine/executions/submitting/submits.sql.ts';
import { callsOn, claimBatch, makeKnown, submitBatch, submitCall, unknownLeases } from './workload.ts';

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

const PATIENCE_MS = 50;

const many = (mode: FrameMode, count: number): [FrameMode, string][] =>
  Array.from({ length: count }, () => [mode, 'x']);

async function expectOutcome(outcome: string, answer: Promise<AppendAnswer>): Promise<void> {
  const told = (await answer).outcome;
  if (told !== outcome) throw new Error(`the walk was told ${told}, not ${outcome}`);
}

export async function walkWritten(database: Database): Promise<void> {
  const [stranger] = unknownLeases(1);
  await expectOutcome('not_found', appendFrames(database, appendCall(stranger!, many('durable', 1)), null));
  const { routes } = await submitBatch(database, { kinds: [`written-${randomUUID()}`], count: 1 });
  const lease = (await claimBatch(database, routes, 1))[0]!;
  const first = appendCall(lease, [
    ...many('durable', 2),
    ['summary', '{"a": {"b": 1}, "list": [{"c": "__ff_null__"}]}'],
    ['summary', '{"a": null}'],
  ]);
  await expectOutcome('appended', appendFrames(database, first, null));
  await expectOutcome('appended', appendFrames(database, first, null));
  const large = JSON.stringify({ a: 'x'.repeat(first.maxDocumentBytes) });
  await expectOutcome(
    'document_too_large',
    appendFrames(database, appendCall(lease, [['summary', large]]), null),
  );
  await expectOutcome(
    'appended',
    appendFrames(database, appendCall(lease, many('best_effort', 3 * KEPT)), PATIENCE_MS),
  );
  await expectOutcome('appended', appendFrames(database, appendCall(lease, many('durable', 1)), null));
  await expectOutcome('appended', appendFrames(database, appendCall(lease, many('best_effort', 1)), null));
  const everything = { attemptIndex: 0, from: { tsMs: 0, seq: 0 }, to: END_PLACE, limit: 2, maxBytes: 1_000 };
  for (const order of ['forward', 'backward'] as const)
    await readFrames(database, lease, { ...everything, order, modes: null });
  await walkTogether(database);
  await callsOn(database).complete([lease]);
  await walkCarried(database);
}

/** A document that is carried into the next attempt, and changed by a child. */
async function walkCarried(database: Database): Promise<void> {
  const { routes } = await submitBatch(database, { kinds: [`written-${randomUUID()}`], count: 1 });
  const lease = (await claimBatch(database, routes, 1))[0]!;
  const patches = Array.from({ length: 300 }, (): [FrameMode, string] => ['summary', '{"a": 1}']);
  await expectOutcome('appended', appendFrames(database, appendCall(lease, patches), null));
  const step = { ...lease, kind: 'step', sleepMs: null, durationMs: null, value: null } as const;
  await recordSteps(database, [{ ...step, name: 's', key: 'a' }]);
  // The snapshot of what is kept is moved on.
  await expectOutcome('appended', appendFrames(database, appendCall(lease, [['summary', '{"b": 1}']]), null));
  const name = `written-${randomUUID()}`;
  const call = await makeKnown(database, submitCall({ kinds: [name], count: 1 }));
  // The first spawn marks its parent.
  await spawnExecutions(database, lease, call);
  const [spawned] = await spawnExecutions(database, lease, call);
  const child = (await claimBatch(database, [spawned!.routeId], 1))[0]!;
  await readParentEnded(database, child);
  const changes = JSON.stringify([{ patch: { c: 1 } }, { path: ['done', 'parts'], by: 1 }]);
  const record = { ...child, name: 's', key: '', durationMs: 1, value: '1', changes };
  for (const most of [1, 1_000, 1_000]) await recordForParent(database, record, most);
  const again = { ...appendCall(lease, [['summary', '{"d": 1}']]), isOfRerun: true };
  await expectOutcome('appended', appendFrames(database, again, null));
  // More than is folded when an attempt ends.
  await expectOutcome('appended', appendFrames(database, appendCall(lease, patches), null));
  await callsOn(database).retry([lease]);
  await refoldDocument(database, lease, 1, 10);
  await callsOn(database).complete([child]);
}

/** Appends of several streams at once: first ones, later ones, patches, a trim, and calls that are left out. */
async function walkTogether(database: Database): Promise<void> {
  const { routes } = await submitBatch(database, { kinds: [`written-${randomUUID()}`], count: 3 });
  const leases = await claimBatch(database, routes, 3);
  const [stranger] = unknownLeases(1);
  const large = JSON.stringify({ a: 'x'.repeat(appendCall(stranger!, []).maxDocumentBytes) });
  const rounds: [FrameMode, string][][][] = [
    [many('durable', 2), [['summary', '{"a": 1}']], many('best_effort', 1)],
    [many('durable', 1), [['summary', large]], many('best_effort', 3 * KEPT)],
  ];
  for (const frames of rounds) {
    const calls = leases.map((lease, index) => appendCall(lease, frames[index]!));
    const answers = await appendToStreams(
      database,
      [...calls, appendCall(stranger!, many('durable', 1))],
      PATIENCE_MS,
    );
    if (answers[0] === undefined || answers[2] === undefined || answers[3] !== undefined)
      throw new Error('the walk was told something else');
  }
  await callsOn(database).complete(leases);
}
