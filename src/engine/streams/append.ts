/**
 * Appends to streams. One append per stream runs at a time, so that ids are in call order and a call whose response was
 * lost can be recognised when it is repeated. A worker sends one append after the other from its own queue. Other calls
 * that arrive during an append wait, and are then sent as one, in order. Appends of different streams share statements.
 */
import { randomUUID } from 'node:crypto';
import type { Claim, LeaseRef } from '../../contract/protocol.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { AppendOptions, AppendOutcome, FrameRequest } from '../../contract/streams.ts';
import type { EncodedFrame } from '../../model/frames.ts';
import { SharedAppends } from './shared-appends.ts';
import type { AppendAnswer } from './append.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import type { EngineContext } from '../kit/context.ts';
import { bytesIn, appendPlan, checkFrames, keepsAlike, patchesIn, type AppendPlan } from './frames.ts';
import { refuse } from '../../contract/shape/shape.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';

interface Call extends AppendPlan {
  lease: LeaseKey;
  mayCarry: boolean;
  frames: EncodedFrame[];
}

interface WaitingCall extends Call {
  resolve(outcome: AppendOutcome): void;
  reject(error: unknown): void;
}

export interface Appends {
  append(lease: LeaseRef, frames: readonly FrameRequest[], options: AppendOptions): Promise<AppendOutcome>;
  /** Waits until every call made so far has finished. */
  settled(): Promise<void>;
}

export function createAppends(context: EngineContext): Appends {
  const shared = new SharedAppends(context);
  /** The waiting calls of each stream with a running append. */
  const lines = new Map<string, WaitingCall[]>();
  const running = new Set<Promise<unknown>>();

  async function drain(line: WaitingCall[]): Promise<void> {
    while (line.length > 0) await sendTogether(shared, line.splice(0, fitting(line)));
  }

  /** Sends what came during the append, if anything did: most often nothing, and then nothing is awaited for it. */
  function next(stream: string, line: WaitingCall[], sent: Promise<unknown>): void {
    running.delete(sent);
    if (line.length === 0) {
      lines.delete(stream);
      return;
    }
    const drained = drain(line);
    running.add(drained);
    const over = (): void => next(stream, line, drained);
    drained.then(over, over);
  }

  return {
    async append(lease, frames, options) {
      const key = leaseKey(lease, 'lease');
      const { appendId, bestEffort } = appendPlan(options);
      // What is redacted is in no notification. Known of a lease that is passed as it was granted.
      const mayCarry = (lease as Partial<Claim>).redacted === false;
      const call: Call = { appendId, bestEffort, lease: key, mayCarry, frames: checkFrames(frames) };
      const stream = `${key.uuid}/${key.attemptIndex}/${key.leaseEpoch}`;
      const line = lines.get(stream);
      if (line !== undefined) return await inLine(line, call);
      const fresh: WaitingCall[] = [];
      lines.set(stream, fresh);
      const sent = sendAlone(shared, call);
      running.add(sent);
      const over = (): void => next(stream, fresh, sent);
      sent.then(over, over);
      return await sent;
    },
    async settled() {
      while (running.size > 0) await Promise.allSettled(running);
    },
  };
}

function inLine(line: WaitingCall[], call: Call): Promise<AppendOutcome> {
  if (line.length >= LIMITS.waitingAppends)
    refuse(
      'frames',
      `cannot be queued: ${LIMITS.waitingAppends} appends already wait on this stream`,
      'too_many',
    );
  return new Promise((resolve, reject) => line.push({ ...call, resolve, reject }));
}

/**
 * How many calls, from the first on, are sent together: within the limits of one call, and with the same best-effort
 * options. A call with an appendId is sent alone, so that it can be recognised.
 */
function fitting(calls: readonly Call[]): number {
  if (calls[0]!.appendId !== undefined) return 1;
  const { bestEffort } = calls[0]!;
  let frames = 0;
  let bytes = 0;
  let patches = 0;
  const end = calls.findIndex(({ appendId, bestEffort: own, frames: rows }) => {
    frames += rows.length;
    bytes += bytesIn(rows);
    patches += patchesIn(rows);
    const isAlike = appendId === undefined && keepsAlike(own, bestEffort);
    const isMuch = frames > LIMITS.appendFrames || bytes > LIMITS.appendBytes;
    return !isAlike || isMuch || patches > LIMITS.appendPatches;
  });
  return end === -1 ? calls.length : Math.max(1, end);
}

async function sendAlone(shared: SharedAppends, call: Call): Promise<AppendOutcome> {
  const answer = await send(shared, [call]);
  if (answer.outcome === 'document_too_large')
    refuse('frames', `make the document larger than ${LIMITS.documentBytes} bytes`, 'payload_too_large');
  return answer.outcome === 'appended' ? outcomeOf(call, answer, NOTHING) : toRefusal(answer);
}

async function sendTogether(shared: SharedAppends, calls: readonly WaitingCall[]): Promise<void> {
  try {
    const answer = await send(shared, calls);
    if (answer.outcome === 'document_too_large') return await sendApart(shared, calls);
    const outcomes = outcomesOf(calls, answer);
    calls.forEach((call, place) => call.resolve(outcomes[place]!));
  } catch (error) {
    for (const call of calls) call.reject(error);
  }
}

/** Sends each call alone, so that only the one whose patch is too large fails. */
async function sendApart(shared: SharedAppends, calls: readonly WaitingCall[]): Promise<void> {
  for (const call of calls) await sendAlone(shared, call).then(call.resolve, call.reject);
}

function send(shared: SharedAppends, calls: readonly Call[]): Promise<AppendAnswer> {
  const { lease, mayCarry, bestEffort, appendId = randomUUID() } = calls[0]!;
  return shared.add({
    lease,
    mayCarry,
    appendId,
    frames: calls.length === 1 ? calls[0]!.frames : calls.flatMap((call) => call.frames),
    ...bestEffort,
    maxDocumentBytes: LIMITS.documentBytes,
  });
}

/** What was written after the frames of a call, in the same statement. */
interface Later {
  frames: number;
  bytes: number;
  patches: number;
}

const NOTHING: Later = { frames: 0, bytes: 0, patches: 0 };

/** Each call gets the ids and counts of its own frames, without those that followed in the same statement. */
function outcomesOf(calls: readonly Call[], answer: AppendAnswer): AppendOutcome[] {
  if (answer.outcome !== 'appended') return calls.map(() => toRefusal(answer));
  const later = { ...NOTHING };
  const outcomes = calls.toReversed().map((call) => {
    const outcome = outcomeOf(call, answer, later);
    later.frames += call.frames.length;
    later.bytes += bytesIn(call.frames);
    later.patches += patchesIn(call.frames);
    return outcome;
  });
  return outcomes.toReversed();
}

function outcomeOf({ frames }: Call, answer: AppendAnswer, later: Later): AppendOutcome {
  const last = answer.lastSeq - later.frames;
  return {
    outcome: 'appended',
    firstId: `${answer.tsMs}-${last - frames.length + 1}`,
    lastId: `${answer.tsMs}-${last}`,
    frameCount: last,
    totalBytes: answer.totalBytes - later.bytes,
    summaryVersion: patchesIn(frames) === 0 ? null : answer.summaryVersion! - later.patches,
  };
}
