/**
 * Closes an engine by a deadline: first user code, then the calls under way. After that nothing waits for the database
 * any more, whatever it does.
 */
import {
  deadlineOf,
  LAST_WORD_MS,
  stopOptions,
  withDeadline,
  type StopOptions,
} from '../contract/stopping.ts';
import { STOP_DEADLINE_MS } from './feed/consumer.ts';
import type { EngineContext } from './kit/context.ts';

/** Calls under way that do not involve user code get their answer by then, or none. */
const ANSWERS_LIMIT_MS = 5_000;
/** For aborted work to notice. */
const SETTLE_MS = 200;

interface Settling {
  settled(): Promise<void>;
}

/** The only way to close. `endUserCode` resolves by the deadline; from then on nothing new is accepted. */
export function closingOf(
  context: EngineContext,
  batches: readonly Settling[],
  endUserCode: (deadlineMs: number) => Promise<void>,
): (options?: StopOptions) => Promise<void> {
  let closing: Promise<void> | undefined;
  const closeOnce = async (deadlineMs: number): Promise<void> => {
    const beganAt = performance.now();
    try {
      for (const companion of context.companions) companion.stop();
      await endUserCode(deadlineMs);
    } finally {
      const leftMs = deadlineMs - (performance.now() - beganAt);
      await closeBy(Math.max(LAST_WORD_MS, Math.min(leftMs, ANSWERS_LIMIT_MS)), context, batches);
    }
  };
  return async (options = {}) => {
    const deadlineMs = deadlineOf(stopOptions.check(options, 'options', ''), STOP_DEADLINE_MS);
    closing ??= closeOnce(deadlineMs);
    return closing;
  };
}

/** Whatever fails on the way, none of our connections stays open. */
async function closeBy(limitMs: number, context: EngineContext, batches: readonly Settling[]): Promise<void> {
  const closed = closeContext(context, batches);
  try {
    await withDeadline(closed, limitMs);
  } finally {
    abandon(context);
  }
  // Nothing waits for the database any more; anything else must not keep the process running.
  await withDeadline(closed, SETTLE_MS);
}

/** Rejects every wait for the database at once, and drops our own connections. */
function abandon({ database, transactions, handlings, doorbell }: EngineContext): void {
  for (const one of [database, transactions, handlings, doorbell]) one.abandon();
}

/** Waiters are rejected; calls under way get their answers first. */
async function closeContext(context: EngineContext, batches: readonly Settling[]): Promise<void> {
  await Promise.all(context.companions.map((companion) => companion.close()));
  context.ends.close();
  context.replies.close();
  context.streams.close();
  await context.feed.close();
  await Promise.all(batches.map((batch) => batch.settled()));
  await Promise.all([context.flowWork.close(), context.families.close(), context.topicWork.close()]);
  await context.doorbell.close();
  await Promise.all([context.transactions.close(), context.handlings.close()]);
  await context.database.close();
}
