/**
 * The one place that notifies others of what has just been committed. An operation passes on what the database
 * returned; who is notified follows from the outcomes alone, so that no operation can forget anybody. The table has
 * every outcome: those that notify nobody, refusals above all, are null. An announcement may be lost: that only costs
 * time.
 */
import type { Hint } from '../../contract/protocol.ts';
import type { SignalEffect } from '../../contract/signals.ts';
import type { Answered, Done, NotDone } from '../executions/answered.sql.ts';
import type { EngineContext } from './context.ts';
import type { Inside } from './doorbell.ts';

type Part = 'uuid' | 'routeId' | 'workerInstanceId' | 'dueInMs' | 'deadlineInMs';

/** Besides those of executions: of the graph of a flow, of a signal, and what a claim or a cancelled flow causes. */
type Outcome =
  | Done
  | NotDone
  | SignalEffect
  | 'sent'
  | 'too_many'
  | 'unblocked'
  | 'skipped'
  | 'more'
  | 'told'
  | 'grown'
  | 'known'
  | 'continued'
  | 'member_cancelled'
  | 'flow_cancelled'
  | 'published';

/** What the database returned for one execution. */
export type Answer = { outcome: Outcome } & { [Given in Part]?: Answered[Given] | null };

/** Whole routes that became claimable, without naming their executions. */
export interface Opened {
  outcome: 'opened';
  routes: readonly number[] | 'all';
  count: number;
}

interface Meaning {
  /** It can be claimed, unless it is due later. */
  claimable?: true;
  ended?: true;
  /** Its stream was written to, was closed, or continues. */
  stream?: true;
  /** There may be work left for its flow. */
  flow?: true;
  /** Executions that wait for a topic are to be told. */
  topic?: true;
  /** Its parent may have to be notified, by a timer that is due at once. */
  parent?: true;
}

const CLAIMABLE: Meaning = { claimable: true };
const GIVEN_UP: Meaning = { claimable: true, stream: true };
const STREAM: Meaning = { stream: true };
const ENDED: Meaning = { ended: true };
const ENDED_BY_OTHERS: Meaning = { ended: true, flow: true, parent: true };

/** Repeated answers are announced too: the process that got the first one may have died before announcing it. */
export const MEANINGS: Readonly<Record<Outcome, Meaning | null>> = {
  submitted: CLAIMABLE,
  duplicate: CLAIMABLE,
  replaced: CLAIMABLE,
  attached: null,
  refused: null,
  fired: CLAIMABLE,
  unblocked: CLAIMABLE,
  replayed: CLAIMABLE,
  changed: CLAIMABLE,
  resumed: CLAIMABLE,
  // Whoever waits for an end or a reply reads again.
  replied: ENDED,
  delayed: {},
  released: GIVEN_UP,
  run_continued: GIVEN_UP,
  revoked: GIVEN_UP,
  lapsed: GIVEN_UP,
  retry_scheduled: STREAM,
  attempt_timed_out: STREAM,
  paused: STREAM,
  suspended: STREAM,
  already_suspended: STREAM,
  continued: STREAM,
  appended: STREAM,
  completed: ENDED,
  failed: ENDED,
  skipped: ENDED,
  member_cancelled: ENDED,
  // dueInMs is set if a parent is to be notified.
  execution_timed_out: { ended: true, flow: true },
  expired: ENDED_BY_OTHERS,
  cancelled: ENDED_BY_OTHERS,
  already_cancelled: ENDED_BY_OTHERS,
  reclaims_exhausted: ENDED_BY_OTHERS,
  more: { flow: true },
  flow_cancelled: { flow: true },
  published: { topic: true },
  discarded: null,
  renewed: null,
  recorded: null,
  created: null,
  told: null,
  grown: null,
  known: null,
  buffered: null,
  not_matching: null,
  not_counted: null,
  counted: null,
  sent: null,
  too_many: null,
  not_found: null,
  not_active: null,
  stale_lease: null,
  lease_expired: null,
  lease_revoked: null,
  timed_out: null,
  conflict: null,
  due: null,
  open: null,
  satisfied: null,
  too_many_waitpoints: null,
  waitpoint_taken: null,
  schema_late: null,
  name_taken: null,
  document_too_large: null,
  no_active_lease: null,
  moved: null,
  not_terminal: null,
  key_taken: null,
  replays_exhausted: null,
  step_not_found: null,
  not_eligible: null,
  held: null,
  unknown_route: null,
  marked: null,
};

/** For looking up what the database says; a later schema may have words that this process does not know. */
const BY_WORD = new Map<string, Meaning | null>(Object.entries(MEANINGS));

export interface Announcement {
  /** What to ring the doorbell with, if anything. */
  hint: Hint | undefined;
  /** Whether this process has work to do for flows. */
  flowWork: boolean;
  /** The same for topics. */
  topicWork: boolean;
}

/** What announcing needs; whoever publishes nothing needs no work for topics. */
type Announcing = Pick<EngineContext, 'doorbell' | 'flowWork'> & Partial<Pick<EngineContext, 'topicWork'>>;

/**
 * Notifies whoever waits for these outcomes, in this process and in others. Call it after the commit only. `here`: the
 * transaction itself has notified the others.
 */
export function announce(
  { doorbell, flowWork, topicWork }: Announcing,
  answers: readonly (Answer | Opened)[],
  reach: 'here' | 'everywhere' = 'everywhere',
): void {
  const announcement = announcementOf(answers);
  if (announcement.hint !== undefined) doorbell.ring(announcement.hint, reach);
  if (announcement.flowWork) flowWork.stir();
  if (announcement.topicWork) topicWork?.stir();
}

/** The same for executions that were completed, when nothing else came of it: there is nothing to derive from each. */
export function announceCompleted({ doorbell }: Pick<EngineContext, 'doorbell'>, uuids: string[]): void {
  doorbell.ring({ routes: [], count: 0, dueInMs: null, workers: [], ended: uuids, streams: [] });
}

/**
 * What the transaction that writes to a stream should notify others with; undefined when it should not, because nobody
 * follows, too many notify, or this process does not listen.
 */
export function announcedInside(
  { doorbell }: Pick<EngineContext, 'doorbell'>,
  uuid: string,
  wrote: () => object | undefined,
): Inside | undefined {
  return doorbell.inside(uuid, wrote);
}

export function announcementOf(answers: readonly (Answer | Opened)[]): Announcement {
  const routes = new Set<number>();
  const workers = new Set<string>();
  const ended: string[] = [];
  const streams: string[] = [];
  let everywhere = false;
  let count = 0;
  let dueInMs = Number.POSITIVE_INFINITY;
  let [flowWork, topicWork] = [false, false];
  for (const answer of answers) {
    if (isOpened(answer)) {
      if (answer.routes === 'all') everywhere = true;
      else for (const route of answer.routes) routes.add(route);
      count += answer.count;
      continue;
    }
    const meaning = BY_WORD.get(answer.outcome);
    if (!isGiven(meaning)) continue;
    const { uuid, routeId, workerInstanceId, dueInMs: due } = answer;
    if (meaning.claimable && isGiven(routeId) && !isGiven(due)) {
      routes.add(routeId);
      count += 1;
    }
    if (meaning.ended && isGiven(uuid)) ended.push(uuid);
    if (meaning.stream && isGiven(uuid)) streams.push(uuid);
    if (isGiven(workerInstanceId)) workers.add(workerInstanceId);
    if (isGiven(due)) dueInMs = Math.min(dueInMs, Math.max(0, due));
    if (isGiven(answer.deadlineInMs)) dueInMs = Math.min(dueInMs, Math.max(0, answer.deadlineInMs));
    if (meaning.parent) dueInMs = 0;
    flowWork ||= meaning.flow === true;
    topicWork ||= meaning.topic === true;
  }
  const hint: Hint = {
    routes: everywhere ? 'all' : [...routes],
    count,
    dueInMs: dueInMs === Number.POSITIVE_INFINITY ? null : dueInMs,
    workers: [...workers],
    ended,
    streams,
  };
  return { hint: isEmpty(hint) ? undefined : hint, flowWork, topicWork };
}

function isOpened(answer: Answer | Opened): answer is Opened {
  return answer.outcome === 'opened';
}

function isGiven<Value>(value: Value | null | undefined): value is Value {
  return value !== null && value !== undefined;
}

function isEmpty({ routes, dueInMs, workers, ended, streams }: Hint): boolean {
  return routes.length + workers.length + ended.length + streams.length === 0 && dueInMs === null;
}
