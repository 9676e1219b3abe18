/**
 * Appends to streams. One append of a stream is under way at a time; what is asked for meanwhile goes out together after it, in order.
 * So a call whose answer was lost can be sent again and is known for what it is.
 */
import { randomUUID } from 'node:crypto';
import type { LeaseRef } from '../../contract/engine.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { AppendOptions, AppendOutcome, FrameRequest } from '../../contract/streams.ts';
import { appendFrames as append, type AppendAnswer, type FrameRow } from './streams.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import { announce } from '../kit/announce.ts';
import { refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkAppendOptions, checkFrames, patchesIn, type AppendPlan } from './frames.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';

interface Call extends AppendPlan {
  lease: LeaseKey;
  frames: FrameRow[];
  resolve(outcome: AppendOutcome): void;
  reject(error: unknown): void;
}

export interface Appends {
  append(lease: LeaseRef, frames: readonly FrameRequest[], options: AppendOptions): Promise<AppendOutcome>;
  /** Until every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createAppends(context: EngineContext): Appends {
  const waiting = new Map<string, Call[]>();
  const running = new Set<Promise<void>>();

  async function drain(stream: string): Promise<void> {
    const calls = waiting.get(stream)!;
    while (calls.length > 0) await send(context, calls.splice(0, fitting(calls)));
    waiting.delete(stream);
  }

  return {
    async append(lease, frames, options) {
      const key = leaseKey(lease, 'lease');
      const plan = checkAppendOptions(options);
      const rows = checkFrames(frames);
      const stream = `${key.uuid}/${key.attemptIndex}/${key.leaseEpoch}`;
      return new Promise((resolve, reject) => {
        const call: Call = { ...plan, lease: key, frames: rows, resolve, reject };
        const before = waiting.get(stream);
        if (before !== undefined) {
          if (before.length >= LIMITS.waitingAppends)
            refuse(
              'frames',
              `are too many at once: ${LIMITS.waitingAppends} appends wait already`,
              'too_many',
            );
          before.push(call);
          return;
        }
        waiting.set(stream, [call]);
        const drained = drain(stream).finally(() => running.delete(drained));
        running.add(drained);
      });
    },
    async settled() {
      await Promise.all(running);
    },
  };
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

async function send(context: EngineContext, calls: readonly Call[]): Promise<void> {
  const { lease, bestEffort, appendId = randomUUID() } = calls[0]!;
  try {
    const answer = await append(context.database, {
      lease,
      appendId,
      frames: calls.flatMap((call) => call.frames),
      ...bestEffort,
      maxDocumentBytes: LIMITS.documentBytes,
    });
    if (answer.outcome === 'document_too_large') return await sendApart(context, calls);
    announce(context, [{ ...answer, execution_id: lease.uuid }]);
    tell(calls, answer);
  } catch (error) {
    for (const call of calls) call.reject(error);
  }
}

/** One patch too many is the trouble of the call that brought it. */
async function sendApart(context: EngineContext, calls: readonly Call[]): Promise<void> {
  if (calls.length > 1) {
    for (const call of calls) await send(context, [call]);
    return;
  }
  refuse('frames', `make a document of more than ${LIMITS.documentBytes} bytes`, 'payload_too_large');
}

/** Each call is told of its own frames: what came after them in the same statement is not its business. */
function tell(calls: readonly Call[], answer: AppendAnswer): void {
  const later = { frames: 0, bytes: 0, patches: 0 };
  for (const call of calls.toReversed()) {
    const { frames } = call;
    const last = answer.last_seq - later.frames;
    const outcome: AppendOutcome =
      answer.outcome === 'appended'
        ? {
            outcome: 'appended',
            firstId: `${answer.ts_ms}-${last - frames.length + 1}`,
            lastId: `${answer.ts_ms}-${last}`,
            frameCount: last,
            totalBytes: answer.total_bytes - later.bytes,
            summaryVersion: patchesIn(frames) === 0 ? null : answer.summary_version! - later.patches,
          }
        : toRefusal(answer);
    later.frames += frames.length;
    later.bytes += bytesIn(frames);
    later.patches += patchesIn(frames);
    call.resolve(outcome);
  }
}

function bytesIn(rows: readonly FrameRow[]): number {
  return rows.reduce((sum, row) => sum + row.payload.length, 0);
}
