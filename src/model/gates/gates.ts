/**
 * Why an execution does not run: turns facts about it and its surroundings into the gates it has to pass, each with a
 * sentence. Times are relative to now, so that nothing here needs a clock. The facts are read elsewhere.
 */
import type { Json } from '../../contract/json.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import { GATES, type Gate, type GateName } from '../../contract/operations.ts';
import type { StateVector } from '../../contract/states.ts';
import { isBlocked, joinFacts, tellJoin, type JoinFacts } from './blocked.ts';
import { offersAll } from '../capabilities.ts';
import { endFacts, tellEnd, type EndFacts } from './ended.ts';
import { holderOf, tellHolder, type SessionFacts } from './held.ts';
import { tellLease, type LeaseFacts } from './running.ts';
import { routeMatches, type Route, type RouteDemand } from '../routes.ts';
import {
  nextTimeMs,
  runFacts,
  suspensionFacts,
  tellRun,
  tellSuspension,
  type SuspensionFacts,
} from './suspended.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { counted, quoted } from '../wording.ts';

/** A worker whose last heartbeat is within this time counts as alive: three heartbeats. */
export const LIVE_WITHIN_MS = 30_000;

/** Live workers that match the route in the same way. */
export interface WorkerGroup {
  kinds: readonly string[];
  /** Null: every lane. */
  lanes: readonly string[] | null;
  capabilities: readonly string[];
  count: number;
  /** Not stopping, and with a free slot. */
  free: number;
  stopping: number;
}

export interface GateFacts {
  state: StateVector;
  attemptIndex: number;
  route: Route;
  /** The pause of its lane; parts that were not given are null. */
  lanePause: {
    pausedAtMs: number | null;
    pausedAgoMs: number | null;
    by: string | null;
    reason: string | null;
  } | null;
  lease: LeaseFacts | null;
  /** When it becomes claimable by itself; negative when a timer is late. */
  eligibleInMs: number | null;
  deadlineInMs: number | null;
  lastFailure: { attemptIndex: number; message: string | null; category: string | null } | null;
  /** The children a pause waits for; the ids of the first few that are open. */
  children: { needed: number; total: number; open: number; firstOpen: readonly ExecutionId[] } | null;
  /** The join it waits for as a member of a flow, or that skipped it. */
  join: JoinFacts | null;
  /** The waits it is suspended for. */
  suspension: SuspensionFacts | null;
  /** Sessions whose transactions hold locks on its rows, the oldest first. */
  sessions: readonly SessionFacts[];
  setbacks: readonly { reconciler: string; failures: number; errorCode: string; retryInMs: number }[];
  end: EndFacts | null;
  workers: readonly WorkerGroup[];
  /** Entries ahead of it in the queue of its route, counted up to a limit. Null when it is not queued. */
  queue: { ahead: number; isCapped: boolean } | null;
}

type Judgement = Omit<Gate, 'gate'>;

/** Every gate, in the order they are passed. The first that holds is the reason. */
export function judgeGates(facts: GateFacts): Gate[] {
  return GATES.map((gate) => ({ gate, ...JUDGES[gate](facts) }));
}

const JUDGES: Record<GateName, (facts: GateFacts) => Judgement> = {
  ended: judgeEnd,
  held: judgeSessions,
  running: judgeLease,
  setback: judgeSetbacks,
  delayed: judgeDelay,
  backing_off: judgeBackoff,
  waiting_children: judgeChildren,
  waiting_upstreams: judgeJoin,
  continue_as_needed: judgeRun,
  suspended: judgeSuspension,
  lane_paused: judgeLane,
  no_worker: judgeWorkers,
  workers_busy: judgeRoom,
  queued: judgeQueue,
};

function open(detail: string, facts: Record<string, Json> = {}): Judgement {
  return { holds: false, detail, facts };
}

function holding(detail: string, facts: Record<string, Json>): Judgement {
  return { holds: true, detail, facts };
}

function judgeEnd({ state, end, deadlineInMs, join }: GateFacts): Judgement {
  if (state.lifecyclePhase !== 'terminal') {
    const until = deadlineInMs === null ? '' : `; its deadline ${when(deadlineInMs)}`;
    return open(`It has not finished${until}.`, { deadlineInMs });
  }
  const outcome = end?.outcome ?? state.terminalOutcome;
  return holding(tellEnd(outcome, end, join), endFacts(outcome, end, join));
}

function judgeSessions({ sessions, state }: GateFacts): Judgement {
  const told = { sessions: sessions.map((session) => ({ ...session })) };
  if (state.lifecyclePhase === 'terminal') return open('It has finished; nothing needs to change it.', told);
  const holder = holderOf(sessions);
  return holder === undefined
    ? open('No session has locked its row for long.', told)
    : holding(tellHolder(holder), told);
}

function judgeLease(facts: GateFacts): Judgement {
  const { state, lease } = facts;
  if (state.lifecyclePhase !== 'active') return open('No worker is running it.');
  if (lease === null) return holding('A worker is running it.', {});
  return holding(tellLease(lease, resisting(facts).length > 0), { ...lease });
}

/** The reconciler an execution depends on now; only setbacks of that one matter. */
function neededReconciler({ state, lease }: GateFacts): string | null {
  if (state.lifecyclePhase === 'active') return (lease?.expiresInMs ?? 1) > 0 ? null : 'expired-leases';
  if (!isWaiting(state) || isBlocked(state)) return null;
  return state.eligibilityState === 'eligible_now' ? null : 'due-timers';
}

/** Setbacks that delay the execution. One that ends before the execution is due does not. */
function resisting(facts: GateFacts): GateFacts['setbacks'] {
  const needed = neededReconciler(facts);
  const waitMs = Math.max(untilTimeMs(facts), 0);
  return facts.setbacks.filter(
    ({ reconciler, retryInMs }) => reconciler === needed && (waitMs === 0 || retryInMs > waitMs),
  );
}

/** How long until a timer is due to move it on. Infinite for a suspension without a timeout and without children. */
function untilTimeMs({ state, eligibleInMs, suspension, children }: GateFacts): number {
  if (state.lifecyclePhase === 'active') return 0;
  if (state.lifecyclePhase !== 'suspended') return eligibleInMs ?? 0;
  if (children !== null) return 0;
  return (suspension && nextTimeMs(suspension)) ?? Number.POSITIVE_INFINITY;
}

function judgeSetbacks(facts: GateFacts): Judgement {
  if (facts.setbacks.length === 0) return open('No reconciler has failed on it.');
  const told = { setbacks: facts.setbacks.map((setback) => ({ ...setback })) };
  const worst = resisting(facts).toSorted((one, other) => other.retryInMs - one.retryInMs)[0];
  if (worst === undefined)
    return open('A reconciler failed on it, but it does not depend on that one now.', told);
  const { reconciler, failures, errorCode, retryInMs } = worst;
  const again = retryInMs > 0 ? `retries in ${shortDuration(retryInMs)}` : 'is about to retry';
  const often = failures === 1 ? 'once' : `${failures} times`;
  return holding(`Reconciler ${reconciler} failed on it ${often} (${errorCode}) and ${again}.`, told);
}

const DELAYS = {
  first_start: 'Its start delay',
  sleep: 'Its sleep',
  rest: 'The delay before it resumes',
};

function judgeDelay({ state, eligibleInMs, deadlineInMs, children }: GateFacts): Judgement {
  const { blockingReason, attemptState } = state;
  if (blockingReason !== 'waiting_for_delay' && blockingReason !== 'waiting_for_resume_delay')
    return open('It is neither delayed nor sleeping.');
  const isRest = blockingReason === 'waiting_for_resume_delay';
  const pause = attemptState === 'pending_first_attempt' ? 'first_start' : 'sleep';
  const reason = isRest ? 'rest' : pause;
  const leftMs = eligibleInMs ?? 0;
  const sooner = children === null ? '' : ', or when enough of its children have finished';
  return holding(`${DELAYS[reason]} ${endsIn(leftMs)}${sooner}${deadlineFirst(leftMs, deadlineInMs)}.`, {
    reason,
    eligibleInMs: leftMs,
    deadlineInMs,
  });
}

function judgeBackoff({
  state,
  attemptIndex,
  eligibleInMs,
  deadlineInMs,
  lastFailure,
}: GateFacts): Judgement {
  if (state.blockingReason !== 'waiting_for_retry_backoff') return open('It is not waiting for a retry.');
  const leftMs = eligibleInMs ?? 0;
  const message = quotedOrNull(lastFailure?.message ?? null);
  const failed = `Attempt ${(lastFailure?.attemptIndex ?? attemptIndex - 1) + 1} failed${bracketed(message)}`;
  const wait = `the backoff before attempt ${attemptIndex + 1} ${endsIn(leftMs)}`;
  return holding(`${failed}; ${wait}${deadlineFirst(leftMs, deadlineInMs)}.`, {
    attemptIndex,
    failedAttemptIndex: lastFailure?.attemptIndex ?? null,
    message,
    category: lastFailure?.category ?? null,
    eligibleInMs: leftMs,
    deadlineInMs,
  });
}

function judgeChildren({ children, state, eligibleInMs }: GateFacts): Judgement {
  if (children === null || !isWaiting(state)) return open('It is not waiting for children.');
  const { needed, total, open: stillOpen, firstOpen } = children;
  const ended = total - stillOpen;
  const told = { needed, total, ended, open: stillOpen, firstOpen: [...firstOpen] };
  const of = needed === total ? `all ${total} of its children` : `${needed} of its ${total} children`;
  if (ended >= needed)
    return holding(`It waited for ${of}, which have finished; it resumes within about a second.`, told);
  const more = stillOpen > firstOpen.length ? ` and ${stillOpen - firstOpen.length} more` : '';
  const untilTime = state.eligibilityState === 'not_eligible_until_time' && eligibleInMs !== null;
  const orSignal = state.lifecyclePhase === 'suspended' ? ' or one of its waits to finish' : '';
  const orTime = untilTime ? ' or its sleep to end' : orSignal;
  const detail = `It is waiting for ${of} to finish${orTime}; ${ended} finished so far, open: ${firstOpen.join(', ')}${more}.`;
  return holding(detail, told);
}

function judgeJoin({ state, join }: GateFacts): Judgement {
  if (!isBlocked(state)) return open('It is not waiting for other members of a flow.');
  return holding(tellJoin(join), joinFacts(join));
}

function judgeRun({ suspension }: GateFacts): Judgement {
  const told = runFacts(suspension);
  return told === null ? open('Its run may receive more messages.') : holding(tellRun(told), { ...told });
}

function judgeSuspension({ state, suspension }: GateFacts): Judgement {
  const { lifecyclePhase, blockingReason } = state;
  if (lifecyclePhase !== 'suspended') return open('It is not suspended.');
  return holding(tellSuspension(blockingReason, suspension), suspensionFacts(blockingReason, suspension));
}

/** Neither finished nor running: whatever else it waits for, it needs a lane and a worker. */
function isWaiting({ lifecyclePhase }: StateVector): boolean {
  return lifecyclePhase !== 'terminal' && lifecyclePhase !== 'active';
}

function judgeLane({ state, route: { lane }, lanePause }: GateFacts): Judgement {
  if (lanePause === null) return open(`Lane ${lane} is not paused.`, { lane });
  const { pausedAtMs, pausedAgoMs, by, reason } = lanePause;
  const told = { lane, pausedAtMs, pausedAgoMs, pausedBy: by, pauseReason: reason };
  if (!isWaiting(state)) return open(`Lane ${lane} is paused, which affects only waiting executions.`, told);
  const since = pausedAgoMs === null ? 'is paused' : `has been paused for ${shortDuration(pausedAgoMs)}`;
  const who = by === null ? '' : ` by ${quoted(by)}`;
  const why = bracketed(quotedOrNull(reason));
  return holding(`Lane ${lane} ${since}${who}${why}; nothing is claimed from it until it is resumed.`, told);
}

const demandOf = (group: WorkerGroup): RouteDemand => ({
  kinds: new Set(group.kinds),
  lanes: group.lanes === null ? undefined : new Set(group.lanes),
  capabilities: new Set(group.capabilities),
});

function sum(groups: readonly WorkerGroup[], part: 'count' | 'free' | 'stopping'): number {
  return groups.reduce((total, group) => total + group[part], 0);
}

function matching({ route, workers }: GateFacts): WorkerGroup[] {
  return workers.filter((group) => routeMatches(route, demandOf(group)));
}

function judgeWorkers(facts: GateFacts): Judgement {
  if (!isWaiting(facts.state)) return open('It needs no worker now.');
  const live = sum(facts.workers, 'count');
  const fitting = sum(matching(facts), 'count');
  if (fitting === 0) return { holds: true, ...whatLacks(facts, live) };
  return open(`${counted(fitting, 'live worker')} can run it.`, { live, matching: fitting });
}

/** The first requirement that no worker meets together with those before it: kind, then lane, then capabilities. */
function whatLacks({ route, workers }: GateFacts, live: number): Omit<Judgement, 'holds'> {
  const { kind, lane, capabilities } = route;
  const told = (lacking: string) => ({
    live,
    matching: 0,
    lacking,
    kind,
    lane,
    capabilities: [...capabilities],
  });
  if (live === 0)
    return {
      detail: `No worker has sent a heartbeat in the last ${shortDuration(LIVE_WITHIN_MS)}.`,
      facts: told('workers'),
    };
  const anyLane: Route = { ...route, capabilities: [] };
  const ofKind = workers.filter((group) => routeMatches(anyLane, { ...demandOf(group), lanes: undefined }));
  if (ofKind.length === 0) return { detail: noneHandles(live, kind), facts: told('kind') };
  const onLane = ofKind.filter((group) => routeMatches(anyLane, demandOf(group)));
  if (onLane.length === 0)
    return { detail: `The workers that handle ${kind} do not serve lane ${lane}.`, facts: told('lane') };
  const missing = fewestMissing(capabilities, onLane);
  const detail = `The workers that handle ${kind} on lane ${lane} lack the capabilities ${missing.join(', ')}.`;
  return { detail, facts: { ...told('capabilities'), missingCapabilities: missing } };
}

function noneHandles(live: number, kind: string): string {
  return live === 1
    ? `The only live worker does not handle ${kind}.`
    : `None of the ${live} live workers handles ${kind}.`;
}

/** What the closest match lacks: there may be no capability that all of them lack. */
function fewestMissing(required: readonly string[], groups: readonly WorkerGroup[]): string[] {
  const missing = groups.map((group) => {
    const offered = new Set(group.capabilities);
    return required.filter((token) => !offersAll([token], offered));
  });
  return missing.toSorted((one, other) => one.length - other.length)[0] ?? [];
}

function judgeRoom(facts: GateFacts): Judgement {
  const groups = matching(facts);
  const fitting = sum(groups, 'count');
  const [free, stopping] = [sum(groups, 'free'), sum(groups, 'stopping')];
  const told = { matching: fitting, free, stopping };
  if (facts.state.eligibilityState !== 'eligible_now') return open('It needs no worker slot now.', told);
  if (fitting === 0) return open('No busy worker holds it back.', told);
  if (free > 0)
    return open(`${free} of ${counted(fitting, 'worker')} that can run it last reported a free slot.`, told);
  const how = `${fitting - stopping} full, ${stopping} stopping`;
  return holding(`All live workers that can run it were busy at their last heartbeat: ${how}.`, told);
}

function judgeQueue({ state, queue }: GateFacts): Judgement {
  if (queue === null || state.eligibilityState !== 'eligible_now') return open('It is not queued.');
  const { ahead, isCapped } = queue;
  if (ahead === 0 && !isCapped)
    return open('Nothing is ahead of it in the queue of its route.', { ahead, isCapped });
  const many = isCapped ? `at least ${counted(ahead, 'execution')}` : counted(ahead, 'execution');
  return holding(`It is queued behind ${many} of the same lane, kind and capabilities.`, { ahead, isCapped });
}

function when(ms: number): string {
  return ms > 0 ? `is in ${shortDuration(ms)}` : `was ${shortDuration(-ms)} ago and it is about to expire`;
}

function endsIn(ms: number): string {
  if (ms > 0) return `ends in ${shortDuration(ms)}`;
  return `ended ${shortDuration(-ms)} ago, and it is queued within about a second`;
}

function deadlineFirst(waitMs: number, deadlineInMs: number | null): string {
  if (deadlineInMs === null || deadlineInMs > waitMs) return '';
  return `, but its deadline ${when(deadlineInMs)}`;
}

function quotedOrNull(message: string | null): string | null {
  return message === null ? null : quoted(message);
}

function bracketed(message: string | null): string {
  return message === null || message === '' ? '' : ` (${message})`;
}
