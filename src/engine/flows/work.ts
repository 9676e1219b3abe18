/**
 * Does the work that finished members leave behind: resolves the edges after them, cancels the losers of joins, cancels
 * members of cancelled flows. The work is stored: any process may do it, and what a dead process leaves others finish.
 */
import { setTimeout as delay } from 'node:timers/promises';
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

/** Finished members handled in one transaction, and their edges resolved. */
const ENDS = 100;
const EDGES = 500;
/** Joins handled in one round, and losers cancelled in one transaction. */
export const GROUPS = 50;
const LOSERS = 500;
/** Flows handled in one round, and members cancelled in one transaction. */
const FLOWS = 20;
const MEMBERS = 500;
/** How long closing an engine waits for it. */
const CLOSE_MS = 1_000;
/** Delay before trying again while another process cancels the flow. */
const HELD_MS = 50;
/** Most rounds of one call. */
const ROUNDS = 1_000;

/** What a round of the dispatcher did with the joins it found. */
export interface DispatchReport {
  dispatched: number;
  orphaned: number;
  skippedForReconciler: number;
  skippedLocked: number;
  errors: number;
}

/** Resolves edges of finished members until none are left, or others are doing it. Returns the number of rounds. */
async function tellAll(context: EngineContext, signal: AbortSignal | undefined): Promise<number> {
  let round = 0;
  for (; round < ROUNDS; round += 1) {
    if (signal?.aborted === true) break;
    const rows = await tellEnds(context.database, ENDS, EDGES);
    // The next round does what this one leaves, so it need not be announced.
    announce(
      context,
      rows.filter((row) => row.outcome !== 'more'),
    );
    if (!rows.some((row) => row.outcome === 'told')) break;
  }
  return round;
}

/** One round over joins with losers to cancel, oldest first, each in its own transaction. */
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
      // A failing join must not block the rest; it stays for the next round.
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

/** The flow work that a cancelled member causes is stored, and done in the same rounds. */
function toAnswer(row: CancelledMember): Answer {
  return { ...row, outcome: 'member_cancelled' };
}

/**
 * Cancels the members of a cancelled flow in chunks. Returns the ids it cancelled; with `others: 'await'` it also waits
 * for other processes.
 */
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
    if (outcome === 'held') await delay(HELD_MS);
  }
}

interface WorkDone {
  done: number;
  failed: number;
}

/** Cancels members of the flows that were cancelled first. A failing flow does not block the rest. */
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

/** Does the outstanding work. Returns how much there was. Throws `contention` when some of it failed. */
export async function workOnFlows(context: EngineContext, signal?: AbortSignal): Promise<number> {
  let done = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    if (signal?.aborted === true) return done;
    const work = await workOnce(context, signal);
    if (work.failed > 0)
      throw new EngineError('contention', `Work on ${work.failed} flows failed and will be retried.`);
    // Nothing is left, or other processes are doing it.
    if (work.done === 0) return done;
    done += work.done;
  }
  return done;
}

/** Runs flow work in the background, once however often it is requested. */
export class FlowWork {
  readonly #work: (signal: AbortSignal) => Promise<number>;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #again = false;

  constructor(work: (signal: AbortSignal) => Promise<number>) {
    this.#work = work;
  }

  /** Starts the work without waiting for it. Only `announce` calls this. */
  stir(): void {
    void this.finish();
  }

  /** Waits until the outstanding work is done. */
  async finish(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#run();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#again && !this.#stop.signal.aborted) {
      this.#again = false;
      // The reconcilers find and report what fails here.
      await this.#work(this.#stop.signal).catch(() => undefined);
    }
    // In the turn of the last check: a request made later must start a new run.
    this.#running = undefined;
  }

  /** Stops after a short wait; unfinished work is left to others. */
  async close(): Promise<void> {
    await Promise.race([this.#running, delay(CLOSE_MS, undefined, { ref: false })]);
    this.#stop.abort();
    await this.#running;
  }
}
