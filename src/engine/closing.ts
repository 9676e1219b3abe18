/**
 * Closing an engine by a deadline: user code first, then what is under way, and then whatever the database does, nothing waits for it
 * any more.
 */
import { LAST_WORD_MS, stopOptions, withDeadline, type StopOptions } from '../contract/stopping.ts';
import { STOP_DEADLINE_MS } from './feed/consumer.ts';
import type { EngineContext } from './kit/context.ts';

/** What is under way and has nothing to do with user code has its answer by then or none. */
const ANSWERS_LIMIT_MS = 5_000;
/** For what is over to notice it. */
const SETTLE_MS = 200;

interface Settling {
  settled(): Promise<void>;
}

/** The one way to close; `endUserCode` resolves by the deadline, and from then on nothing new is accepted. */
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
    const { deadlineMs = STOP_DEADLINE_MS } = stopOptions.check(options, 'options', '');
    closing ??= closeOnce(deadlineMs);
    return closing;
  };
}

/** Whatever fails on the way, no connection of ours stays open. */
async function closeBy(limitMs: number, context: EngineContext, batches: readonly Settling[]): Promise<void> {
  const closed = closeContext(context, batches);
  try {
    await withDeadline(closed, limitMs);
  } finally {
    abandon(context);
  }
  // Nothing waits for the database any more; what waits for something else is not worth a process.
  await withDeadline(closed, SETTLE_MS);
}

/** Every wait for the database is over at once; the connections that are ours are gone. */
function abandon({ database, transactions, handlings, doorbell }: EngineContext): void {
  for (const one of [database, transactions, handlings, doorbell]) one.abandon();
}

/** Whoever waits is notified; what is under way has its answer first. */
async function closeContext(context: EngineContext, batches: readonly Settling[]): Promise<void> {
  await Promise.all(context.companions.map((companion) => companion.close()));
  context.ends.close();
  context.streams.close();
  await context.feed.close();
  await Promise.all(batches.map((batch) => batch.settled()));
  await context.flowWork.close();
  await context.doorbell.close();
  await Promise.all([context.transactions.close(), context.handlings.close()]);
  await context.database.close();
}
