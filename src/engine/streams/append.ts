/**
 * Appends to streams. One append of a stream is under way at a time, so that ids are in the order of the calls, and a call whose answer
 * was lost can be sent again and is known for what it is. A worker has a queue of its own and sends one append after the other: those
 * go straight to the database. Calls of others that come while one is under way wait, and go out together after it, in order.
 */
import { randomUUID } from 'node:crypto';
import type { LeaseRef } from '../../contract/protocol.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { AppendOptions, AppendOutcome, FrameRequest } from '../../contract/streams.ts';
import type { EncodedFrame } from '../../model/frames.ts';
import { appendFrames as append, type AppendAnswer } from './streams.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { bytesIn, appendPlan, checkFrames, patchesIn, type AppendPlan } from './frames.ts';
import { refuse } from '../../contract/shape.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';

interface Call extends AppendPlan {
  lease: LeaseKey;
  frames: EncodedFrame[];
}

interface WaitingCall extends Call {
  resolve(outcome: AppendOutcome): void;
  reject(error: unknown): void;
}

export interface Appends {
  append(lease: LeaseRef, frames: readonly FrameRequest[], options: AppendOptions): Promise<AppendOutcome>;
  /** Until every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createAppends(context: EngineContext): Appends {
  /** Of each stream with an append under way, the calls that came meanwhile. */
  const lines = new Map<string, WaitingCall[]>();
  const running = new Set<Promise<void>>();

  async function drain(stream: string, line: WaitingCall[]): Promise<void> {
    while (line.length > 0) await sendTogether(context, line.splice(0, fitting(line)));
    lines.delete(stream);
  }

  return {
    async append(lease, frames, options) {
      const key = leaseKey(lease, 'lease');
      const plan = appendPlan(options);
      const call: Call = { ...plan, lease: key, frames: checkFrames(frames) };
      const stream = `${key.uuid}/${key.attemptIndex}/${key.leaseEpoch}`;
      const line = lines.get(stream);
      if (line !== undefined) return await inLine(line, call);
      const fresh: WaitingCall[] = [];
      lines.set(stream, fresh);
      const sent = sendAlone(context, call);
      const drained = sent
        .then(noValue, noValue)
        .then(() => drain(stream, fresh))
        .finally(() => running.delete(drained));
      running.add(drained);
      return await sent;
    },
    async settled() {
      await Promise.all(running);
    },
  };
}

function noValue(): void {}

function inLine(line: WaitingCall[], call: Call): Promise<AppendOutcome> {
  if (line.length >= LIMITS.waitingAppends)
    refuse('frames', `are too many at once: ${LIMITS.waitingAppends} appends wait already`, 'too_many');
  return new Promise((resolve, reject) => line.push({ ...call, resolve, reject }));
}

/**
 * How many of the calls, from the first on, go out together: as much as one call may hold, and kept for as long. A call with a name
 * goes alone, so that it can be known by it.
 */
function fitting(calls: readonly Call[]): number {
  if (calls[0]!.appendId !== undefined) return 1;
  const { ttlMs, floor, ceiling, alpha } = calls[0]!.bestEffort;
  let frames = 0;
  let bytes = 0;
  let patches = 0;
  const end = calls.findIndex(({ appendId, bestEffort: own, frames: rows }) => {
    frames += rows.length;
    bytes += bytesIn(rows);
    patches += patchesIn(rows);
    const isAlike =
      appendId === undefined &&
      own.ttlMs === ttlMs &&
      own.floor === floor &&
      own.ceiling === ceiling &&
      own.alpha === alpha;
    const isMuch = frames > LIMITS.appendFrames || bytes > LIMITS.appendBytes;
    return !isAlike || isMuch || patches > LIMITS.appendPatches;
  });
  return end === -1 ? calls.length : Math.max(1, end);
}

async function sendAlone(context: EngineContext, call: Call): Promise<AppendOutcome> {
  const answer = await send(context, [call]);
  if (answer.outcome === 'document_too_large')
    refuse('frames', `make a document of more than ${LIMITS.documentBytes} bytes`, 'payload_too_large');
  return outcomesOf([call], answer)[0]!;
}

async function sendTogether(context: EngineContext, calls: readonly WaitingCall[]): Promise<void> {
  try {
    const answer = await send(context, calls);
    if (answer.outcome === 'document_too_large') return await sendApart(context, calls);
    const outcomes = outcomesOf(calls, answer);
    calls.forEach((call, place) => call.resolve(outcomes[place]!));
  } catch (error) {
    for (const call of calls) call.reject(error);
  }
}

/** One patch too many is the trouble of the call that brought it. */
async function sendApart(context: EngineContext, calls: readonly WaitingCall[]): Promise<void> {
  for (const call of calls) await sendAlone(context, call).then(call.resolve, call.reject);
}

async function send(context: EngineContext, calls: readonly Call[]): Promise<AppendAnswer> {
  const { lease, bestEffort, appendId = randomUUID() } = calls[0]!;
  const answer = await append(context.database, {
    lease,
    appendId,
    frames: calls.flatMap((call) => call.frames),
    ...bestEffort,
    maxDocumentBytes: LIMITS.documentBytes,
  });
  announce(context, [{ ...answer, uuid: lease.uuid }]);
  return answer;
}

/** Each call is told of its own frames: what came after them in the same statement is not its business. */
function outcomesOf(calls: readonly Call[], answer: AppendAnswer): AppendOutcome[] {
  if (answer.outcome !== 'appended') return calls.map(() => toRefusal(answer));
  const later = { frames: 0, bytes: 0, patches: 0 };
  const outcomes = calls.toReversed().map(({ frames }): AppendOutcome => {
    const last = answer.lastSeq - later.frames;
    const patches = patchesIn(frames);
    const outcome: AppendOutcome = {
      outcome: 'appended',
      firstId: `${answer.tsMs}-${last - frames.length + 1}`,
      lastId: `${answer.tsMs}-${last}`,
      frameCount: last,
      totalBytes: answer.totalBytes - later.bytes,
      summaryVersion: patches === 0 ? null : answer.summaryVersion! - later.patches,
    };
    later.frames += frames.length;
    later.bytes += bytesIn(frames);
    later.patches += patches;
    return outcome;
  });
  return outcomes.toReversed();
}
