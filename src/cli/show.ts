/**
 * `flowfabric show`: one execution, whole: its state and why, who holds it, what it has done, how it ended.
 */
import { EngineError } from '../contract/errors.ts';
import type { AttemptSnapshot, ExecutionEnd, ExecutionSnapshot } from '../contract/engine.ts';
import { parseExecutionId } from '../contract/ids.ts';
import type { PublicState } from '../contract/states.ts';
import { EXIT } from './exit-codes.ts';
import type { Line, Tone } from './look.ts';
import { printable } from './secrets.ts';
import { withEngine, type Session } from './session.ts';
import { instant, why } from './wording.ts';

const LABEL_COLUMNS = 11;
/** Attempts listed for people; --json has all of them. */
const ATTEMPTS_SHOWN = 10;

export async function showCommand(id: string, session: Session): Promise<number> {
  parseExecutionId(id, 'id');
  const { snapshot, end } = await withEngine(session, { listen: 'off' }, async (engine) => {
    const found = await engine.describe(id);
    if (found === null) throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
    if (found.state.lifecyclePhase !== 'terminal') return { snapshot: found, end: null };
    return { snapshot: found, end: (await engine.result(id)) as ExecutionEnd };
  });
  session.printer.result({ ...snapshot, why: why(snapshot, end), result: end }, linesOf(snapshot, end));
  return EXIT.ok;
}

const TONES: Partial<Record<PublicState, Tone>> = {
  completed: 'good',
  failed: 'bad',
  expired: 'bad',
  cancelled: 'warn',
};

function linesOf(snapshot: ExecutionSnapshot, end: ExecutionEnd | null): Line[] {
  const { publicState } = snapshot;
  return [
    [
      [`${snapshot.executionId}  `, 'strong'],
      [publicState, TONES[publicState] ?? 'plain'],
    ],
    row('why', why(snapshot, end)),
    row('task', printable(snapshot.kind)),
    row('place', placeOf(snapshot)),
    ...tagRow(snapshot.tags),
    row('submitted', instant(snapshot.createdAtMs)),
    ...(snapshot.startedAtMs === null ? [] : [row('started', instant(snapshot.startedAtMs))]),
    ...(snapshot.endedAtMs === null ? [] : [row('ended', instant(snapshot.endedAtMs))]),
    ...leaseRow(snapshot),
    ...progressRow(snapshot),
    ...attemptRows(snapshot),
    row('steps', String(snapshot.stepCount)),
    ...(snapshot.parentId === null ? [] : [row('parent', snapshot.parentId)]),
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

function attemptRows(snapshot: ExecutionSnapshot): Line[] {
  const { attempts, attemptIndex, retryCount, reclaimCount } = snapshot;
  const counts = `${retryCount} retries, ${reclaimCount} leases lost`;
  const left = attempts.length - ATTEMPTS_SHOWN;
  return [
    row('attempts', `${snapshot.startedAtMs === null ? 0 : attemptIndex + 1} (${counts})`),
    ...(left > 0 ? [row('', `… ${left} earlier ones`, 'dim')] : []),
    ...attempts.slice(-ATTEMPTS_SHOWN).map((attempt) => row('', attemptText(attempt))),
  ];
}

/** A lost lease is stored under an established word that reads like the task's own time limit. */
function failureText(message: string): string {
  return message === 'attempt_timeout'
    ? 'its worker was not heard of until the lease ran out (attempt_timeout)'
    : printable(message);
}

function attemptText(attempt: AttemptSnapshot): string {
  const number = attempt.attemptIndex + 1;
  const by = attempt.workerInstanceId === null ? '' : ` by ${printable(attempt.workerInstanceId)}`;
  const failure = attempt.failureMessage === null ? '' : `: ${failureText(attempt.failureMessage)}`;
  return `${number}. ${attempt.outcome ?? 'paused'}${by}, begun ${instant(attempt.startedAtMs)}${failure}`;
}
