/**
 * Tells executions what was published: in transactions of a few hundred, by the process that published and, if that dies,
 * by any other. What was published to one topic is delivered in its order: a wait gets the first after it began.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { LIMITS } from '../../contract/limits.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import {
  finishTelling,
  forgetTopics,
  listMissed,
  listUntold,
  listWaiting,
  tellTopic,
  type Published,
} from './topics.sql.ts';

/** Publishes read at once, and rounds of one call. */
const PUBLISHED = 50;
const ROUNDS = 1_000;
const FIRST = '00000000-0000-0000-0000-000000000000';
const FORGOTTEN = 500;

/** Tells what was published until nothing is left, or only executions that others have locked. Returns how many it told. */
export async function tellTopics(context: EngineContext, signal?: AbortSignal): Promise<number> {
  let told = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const part = await tellRound(context, signal);
    told += part.told;
    if (part.finished === 0) break;
  }
  return told;
}

/** One of each topic. A topic whose executions others have locked keeps no other waiting. */
async function tellRound(
  context: EngineContext,
  signal: AbortSignal | undefined,
): Promise<{ told: number; finished: number }> {
  let [after, told, finished] = [0, 0, 0];
  for (;;) {
    if (signal?.aborted === true) return { told, finished: 0 };
    const untold = await listUntold(context.database, after, PUBLISHED);
    for (const published of untold) {
      const part = await tellOne(context, published, signal);
      told += part.told;
      finished += part.isFinished ? 1 : 0;
    }
    if (untold.length < PUBLISHED) return { told, finished };
    after = untold.at(-1)!.seq;
  }
}

interface Part {
  told: number;
  isFinished: boolean;
}

/** Goes through everybody who waits, and again for those who were locked, a few times. */
async function tellOne(
  context: EngineContext,
  published: Published,
  signal: AbortSignal | undefined,
): Promise<Part> {
  let told = 0;
  for (let poll = 0; poll <= LIMITS.passPolls; poll += 1) {
    if (poll > 1) await delay(LIMITS.heldPollMs * 2 ** poll);
    const pass = await tellPass(context, published, signal);
    told += pass.told;
    // Nobody at all: a wait that is registered now reads the home afterwards.
    if (pass.found === 0 && signal?.aborted !== true) {
      await finishTelling(context.database, published);
      return { told, isFinished: true };
    }
  }
  return { told, isFinished: false };
}

async function tellPass(
  context: EngineContext,
  published: Published,
  signal: AbortSignal | undefined,
): Promise<{ found: number; told: number }> {
  let [after, found, told] = [0, 0, 0];
  for (;;) {
    if (signal?.aborted === true) break;
    const waiting = await listWaiting(context.database, published, after, LIMITS.topicTold);
    if (waiting.length === 0) break;
    found += waiting.length;
    after = waiting.at(-1)!.waitNo;
    const executions = new Set(waiting.map(({ uuid }) => uuid));
    const answers = await tellTopic(context.database, [...executions], published);
    announce(context, answers);
    told += answers.filter(({ outcome }) => outcome === 'resumed' || outcome === 'recorded').length;
  }
  return { found, told };
}

/**
 * Tells waits what they have missed, because their process died after it had registered them: `limit` waits from after an
 * execution on. Returns how many it told, and where to continue; null at the end.
 */
export async function tellMissedWaits(
  context: EngineContext,
  after: string | null,
  limit: number,
): Promise<{ told: number; next: string | null }> {
  const rows = await listMissed(context.database, after ?? FIRST, limit);
  let told = 0;
  for (const { uuid, published } of rows) {
    if (published === null) continue;
    const answers = await tellTopic(context.database, [uuid], published);
    announce(context, answers);
    told += answers.filter(({ outcome }) => outcome === 'resumed' || outcome === 'recorded').length;
  }
  const last = rows.at(-1);
  return { told, next: last === undefined || last.examined < limit ? null : last.uuid };
}

/** Forgets what was kept long enough. Returns how much. */
export async function forgetOldTopics({ database }: EngineContext, signal: AbortSignal): Promise<number> {
  let count = 0;
  for (let round = 0; round < ROUNDS && !signal.aborted; round += 1) {
    const gone = await forgetTopics(database, FORGOTTEN);
    count += gone;
    if (gone < FORGOTTEN) break;
  }
  return count;
}
