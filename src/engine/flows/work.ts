/**
 * Finishes what ends of members have left to be done: tells those after them, stops the losers of joins, cancels members of cancelled
 * flows. All of it is stored and taken in turns: any process may do it at any moment, and a process that dies leaves it to the others.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { formatExecutionId, type ExecutionId } from '../../contract/ids.ts';
import { EngineError } from '../../contract/errors.ts';
import {
  cancelMembers,
  cancelSiblings,
  listCancellingFlows,
  listPendingGroups,
  readFlowWork,
  tellEnds,
  type CancelledMember,
  type PendingGroup,
} from './work.sql.ts';
import { announce, type Answer } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';

/** Ends told in one transaction, and edges of them resolved. */
const ENDS = 100;
const EDGES = 500;
/** Joins taken in one round, and losers stopped in one transaction. */
export const GROUPS = 50;
const LOSERS = 500;
/** Flows taken in one round, and members cancelled in one transaction. */
const FLOWS = 20;
const MEMBERS = 500;
/** How long an engine that is closed goes on with it. */
const CLOSE_MS = 1_000;
/** Before a flow that somebody else is cancelling is looked at again. */
const HELD_MS = 50;
/** Rounds of one call; what is left then is for the next. */
const ROUNDS = 1_000;

/** What a round of the dispatcher did with the joins it found. */
export interface DispatchReport {
  dispatched: number;
  orphaned: number;
  skippedForReconciler: number;
  skippedLocked: number;
  errors: number;
}

/** Tells ends until there are none, or only those that others tell. Answers how many rounds it took. */
async function tellAll(context: EngineContext, signal: AbortSignal | undefined): Promise<number> {
  let round = 0;
  for (; round < ROUNDS; round += 1) {
    if (signal?.aborted === true) break;
    const rows = await tellEnds(context.database, ENDS, EDGES);
    // What is left after this round is for the next one, here: nobody has to be told of it.
    announce(
      context,
      rows.filter((row) => row.outcome !== 'more'),
    );
    if (!rows.some((row) => row.outcome === 'told')) break;
  }
  return round;
}

/** One round over joins whose losers are to be stopped, the oldest first; each in a transaction of its own. */
export async function dispatchSiblings(context: EngineContext, limit = GROUPS): Promise<DispatchReport> {
  const report: DispatchReport = {
    dispatched: 0,
    orphaned: 0,
    skippedForReconciler: 0,
    skippedLocked: 0,
    errors: 0,
  };
  for (const group of await listPendingGroups(context.database, limit)) {
    try {
      report[await dispatchGroup(context, group)] += 1;
    } catch {
      // One bad join never stops the rest; it stays for the next round.
      report.errors += 1;
    }
  }
  return report;
}

async function dispatchGroup(context: EngineContext, group: PendingGroup): Promise<keyof DispatchReport> {
  for (;;) {
    const { outcome, cancelled } = await cancelSiblings(context.database, group, LOSERS);
    announce(context, cancelled.map(toAnswer));
    switch (outcome) {
      case 'unfinished':
        continue;
      case 'skipped_for_reconciler':
        return 'skippedForReconciler';
      case 'skipped_locked':
        return 'skippedLocked';
      default:
        return outcome;
    }
  }
}

/** What it leaves to its flow is stored, and done in the rounds that stopped it. */
function toAnswer(row: CancelledMember): Answer {
  return { ...row, outcome: 'member_cancelled' };
}

/** Cancels the members of one flow that is being cancelled, in chunks. Answers those that were; who waits does so until others are done, too. */
export async function cancelInChunks(
  context: EngineContext,
  flow: { uuid: string; partition: number },
  options: { others: 'await' | 'leave'; signal: AbortSignal | undefined },
): Promise<ExecutionId[]> {
  const ids: ExecutionId[] = [];
  for (;;) {
    options.signal?.throwIfAborted();
    const { outcome, cancelled } = await cancelMembers(context.database, flow.uuid, MEMBERS);
    announce(context, cancelled.map(toAnswer));
    ids.push(...cancelled.map((row) => formatExecutionId(flow.partition, row.uuid)));
    if (outcome === 'done' || (outcome === 'held' && options.others === 'leave')) return ids;
    if (outcome === 'held') await pause(HELD_MS);
  }
}

interface WorkDone {
  done: number;
  failed: number;
}

/** Cancels members of the flows that were cancelled first. One bad flow never stops the rest. */
async function cancelOldest(context: EngineContext, signal: AbortSignal | undefined): Promise<WorkDone> {
  const work: WorkDone = { done: 0, failed: 0 };
  for (const flow of await listCancellingFlows(context.database, FLOWS)) {
    try {
      work.done += (await cancelInChunks(context, flow, { others: 'leave', signal })).length;
    } catch {
      work.failed += 1;
    }
  }
  return work;
}

async function workOnce(context: EngineContext, signal: AbortSignal | undefined): Promise<WorkDone> {
  const left = await readFlowWork(context.database);
  const cancelled = left.cancels ? await cancelOldest(context, signal) : { done: 0, failed: 0 };
  const stopped = left.siblings ? await dispatchSiblings(context) : undefined;
  const told = left.ends ? await tellAll(context, signal) : 0;
  return {
    done: cancelled.done + (stopped?.dispatched ?? 0) + (stopped?.orphaned ?? 0) + told,
    failed: cancelled.failed + (stopped?.errors ?? 0),
  };
}

/** Does what there is to do now. Answers how much there was. */
export async function workOnFlows(context: EngineContext, signal?: AbortSignal): Promise<number> {
  let done = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    if (signal?.aborted === true) return done;
    const work = await workOnce(context, signal);
    if (work.failed > 0)
      throw new EngineError('contention', `Work on ${work.failed} flows failed; it is tried again.`);
    // What is left is in others' hands, or there is nothing.
    if (work.done === 0) return done;
    done += work.done;
  }
  return done;
}

/** Has the work done soon by this process, once however often it is asked. */
export class FlowWork {
  readonly #work: (signal: AbortSignal) => Promise<number>;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #again = false;

  constructor(work: (signal: AbortSignal) => Promise<number>) {
    this.#work = work;
  }

  /** Has it begun; whoever asks does not wait for it. Only `announce` does. */
  stir(): void {
    void this.finish();
  }

  /** Until what there is to do now is done. */
  async finish(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#again && !this.#stop.signal.aborted) {
      this.#again = false;
      // What fails here is found by the reconcilers, who say so.
      await this.#work(this.#stop.signal).catch(() => undefined);
    }
  }

  /** What is not done in time is left to others. */
  async close(): Promise<void> {
    await Promise.race([this.#running, pause(CLOSE_MS, undefined, { ref: false })]);
    this.#stop.abort();
    await this.#running;
  }
}
