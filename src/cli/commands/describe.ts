/**
 * `flowfabric describe`: one execution, whole: its state and why, its lease, its attempts, progress and steps, and how it
 * ended.
 */
import type { Connection } from '../../connect/connection.ts';
import { EngineError } from '../../contract/errors.ts';
import type { AttemptSnapshot, ExecutionEnd, ExecutionSnapshot } from '../../contract/executions.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { AttemptRecord } from '../../contract/operations.ts';
import type { PendingWaitpoint } from '../../contract/signals.ts';
import { AN_ID, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { waitpointText } from '../drawing/waitpoint.ts';
import { EXIT } from '../exit-codes.ts';
import type { Line, Tone } from '../style.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { instant, thousands, toneOf, whyOf } from '../wording.ts';

const LABEL_COLUMNS = 11;
/** Attempts listed without --attempts. */
const ATTEMPTS_SHOWN = 10;
/** Pages of attempts read with --attempts. */
const ATTEMPT_PAGES_MAX = 100;

interface DescribeOptions {
  attempts?: true;
}

export const describe: CommandSpec = {
  name: 'describe',
  alias: 'show',
  summary: 'show one execution',
  description: 'Show an execution: its state and why, its lease, attempts, progress, steps and\nresult.',
  arguments: [ID_ARGUMENT],
  options: [['--attempts', 'list all attempts, with everything known about each']],
  examples: [`flowfabric describe ${AN_ID}`],
  action: run,
};

interface Described {
  snapshot: ExecutionSnapshot;
  why: string;
  /** How it ended; null while it has not. */
  end: ExecutionEnd | null;
  /** All that are kept, oldest first; null without --attempts. */
  attempts: AttemptRecord[] | null;
  /** Where it waits for signals, as of now; null when it is not suspended. */
  waits: { waitpoints: PendingWaitpoint[]; nowMs: number } | null;
}

async function run(session: Session, options: DescribeOptions, id: string): Promise<number> {
  parseExecutionId(id, 'id');
  const described = await withEngine(session, { listen: 'off' }, async (engine): Promise<Described> => {
    const snapshot = await engine.executions.describe(id);
    const explanation = await engine.executions.explain(id);
    if (snapshot === null || explanation.outcome === 'not_found')
      throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
    const hasEnded = snapshot.state.lifecyclePhase === 'terminal';
    const end = hasEnded ? ((await engine.executions.result(id)) as ExecutionEnd) : null;
    const attempts = options.attempts ? await readAttempts(engine, id, session) : null;
    const waits = await readWaits(engine, snapshot);
    return { snapshot, why: whyOf(explanation), end, attempts, waits };
  });
  const { snapshot, why, end, attempts, waits } = described;
  const whole = {
    ...snapshot,
    ...(attempts === null ? {} : { attempts }),
    ...(waits === null ? {} : { waitpoints: waits.waitpoints }),
  };
  session.printer.result({ ...whole, why, result: end }, linesOf(described));
  return EXIT.ok;
}

async function readWaits(
  engine: Connection,
  { executionId, state }: ExecutionSnapshot,
): Promise<Described['waits']> {
  if (state.lifecyclePhase !== 'suspended') return null;
  const { waitpoints } = await engine.waitpoints.list({ executionId });
  return { waitpoints, nowMs: await engine.upkeep.serverTimeMs() };
}

async function readAttempts(engine: Connection, id: string, { printer }: Session): Promise<AttemptRecord[]> {
  const newestFirst: AttemptRecord[] = [];
  let before: number | null = null;
  for (let pages = 0; pages < ATTEMPT_PAGES_MAX; pages += 1) {
    const page = await engine.executions.listAttempts(id, {
      limit: LIMITS.listPage,
      ...(before === null ? {} : { before: before as number }),
    });
    newestFirst.push(...page.attempts);
    before = page.before;
    if (before === null) return newestFirst.toReversed();
  }
  printer.note(`only the last ${thousands(newestFirst.length)} attempts are listed.`);
  return newestFirst.toReversed();
}

function linesOf({ snapshot, why, end, attempts, waits }: Described): Line[] {
  const { publicState } = snapshot;
  return [
    [
      [`${snapshot.executionId}  `, 'strong'],
      [publicState, toneOf(publicState)],
    ],
    row('why', why),
    ...waitRows(waits),
    row('task', printable(snapshot.kind)),
    row('place', placeOf(snapshot)),
    ...tagRow(snapshot.tags),
    row('submitted', instant(snapshot.createdAtMs)),
    ...(snapshot.startedAtMs === null ? [] : [row('started', instant(snapshot.startedAtMs))]),
    ...(snapshot.endedAtMs === null ? [] : [row('ended', instant(snapshot.endedAtMs))]),
    ...(snapshot.deadlineAtMs === null ? [] : [row('deadline', instant(snapshot.deadlineAtMs))]),
    ...leaseRow(snapshot),
    ...progressRow(snapshot),
    ...(snapshot.replayCount === 0 ? [] : [row('replays', String(snapshot.replayCount))]),
    ...attemptRows(snapshot, attempts),
    row('steps', String(snapshot.stepCount)),
    ...(snapshot.parentId === null ? [] : [row('parent', snapshot.parentId)]),
    ...(snapshot.flowId === null ? [] : [row('flow', snapshot.flowId)]),
    ...snapshot.setbacks.map(({ reconciler, failures, errorCode }) =>
      row('setback', `${reconciler} could not act on it ${failures} times (${errorCode})`, 'bad'),
    ),
    ...(end?.outcome === 'success' ? [row('result', JSON.stringify(end.result))] : []),
  ];
}

function row(label: string, text: string, tone: Tone = 'plain'): Line {
  return [
    [`  ${label.padEnd(LABEL_COLUMNS)}`, 'dim'],
    [text, tone],
  ];
}

function waitRows(waits: Described['waits']): Line[] {
  if (waits === null) return [];
  const texts = waits.waitpoints.map((waitpoint) => waitpointText(waitpoint, waits.nowMs));
  return texts.map((text, index) => row(index === 0 ? 'waits at' : '', text));
}

function placeOf({ lane, namespace, priority }: ExecutionSnapshot): string {
  return `lane ${printable(lane)}, namespace ${printable(namespace)}, priority ${priority}`;
}

function tagRow(tags: Record<string, string>): Line[] {
  const pairs = Object.entries(tags).map(([key, value]) => printable(`${key}=${value}`));
  return pairs.length === 0 ? [] : [row('tags', pairs.join(', '))];
}

function leaseRow({ lease }: ExecutionSnapshot): Line[] {
  if (lease === null) return [];
  const holder = `${printable(lease.workerId)} (${printable(lease.workerInstanceId)})`;
  return [
    row('lease', `${holder} since ${instant(lease.acquiredAtMs)}, until ${instant(lease.expiresAtMs)}`),
  ];
}

function progressRow({ progress }: ExecutionSnapshot): Line[] {
  if (progress === null) return [];
  const parts = [
    progress.percent === null ? '' : `${progress.percent} %`,
    progress.message === null ? '' : printable(progress.message),
  ].filter((part) => part !== '');
  return [row('progress', `${parts.join(', ')} at ${instant(progress.reportedAtMs)}`)];
}

function attemptRows(snapshot: ExecutionSnapshot, all: AttemptRecord[] | null): Line[] {
  const { attempts, attemptIndex, retryCount, reclaimCount } = snapshot;
  const counts = `${retryCount} retries, ${reclaimCount} leases lost`;
  const heading = row('attempts', `${snapshot.startedAtMs === null ? 0 : attemptIndex + 1} (${counts})`);
  if (all !== null) return [heading, ...all.map((attempt) => row('', recordText(attempt, snapshot)))];
  const left = attempts.length - ATTEMPTS_SHOWN;
  return [
    heading,
    ...(left > 0 ? [row('', `… ${left} earlier: --attempts lists all`, 'dim')] : []),
    ...attempts.slice(-ATTEMPTS_SHOWN).map((attempt) => row('', attemptText(attempt))),
  ];
}

/** A lost lease is stored as `attempt_timeout`, which reads like the task's own time limit. */
function failureText(message: string): string {
  return message === 'attempt_timeout'
    ? 'its worker did not report until the lease ran out (attempt_timeout)'
    : printable(message);
}

function attemptText(attempt: AttemptSnapshot): string {
  const number = attempt.attemptIndex + 1;
  const by = attempt.workerInstanceId === null ? '' : ` by ${printable(attempt.workerInstanceId)}`;
  const failure = attempt.failureMessage === null ? '' : `: ${failureText(attempt.failureMessage)}`;
  return `${number}. ${attempt.outcome ?? 'paused'}${by}, begun ${instant(attempt.startedAtMs)}${failure}`;
}

/** Everything known about an attempt, on one line. */
function recordText(attempt: AttemptRecord, { lease, attemptIndex }: ExecutionSnapshot): string {
  const runs = lease !== null && attempt.attemptIndex === attemptIndex;
  const outcome = attempt.outcome ?? (runs ? 'running' : 'paused');
  const lost = attempt.interruptedBy === null ? '' : ` (lease ${attempt.interruptedBy})`;
  const by = attempt.workerInstanceId === null ? '' : ` by ${printable(attempt.workerInstanceId)}`;
  const { startedAtMs, endedAtMs, retryAtMs } = attempt;
  const lasted = endedAtMs === null ? '' : `, took ${shortDuration(endedAtMs - startedAtMs)}`;
  const failure = attempt.failureMessage === null ? '' : `: ${failureText(attempt.failureMessage)}`;
  const category = attempt.failureCategory === null ? '' : ` (${printable(attempt.failureCategory)})`;
  const retry = retryAtMs === null ? '' : `; next due ${instant(retryAtMs)}`;
  const begun = `begun ${instant(startedAtMs)}${lasted}`;
  return `${attempt.attemptIndex + 1}. ${outcome}${lost}${by}, ${begun}${failure}${category}${retry}`;
}
