/**
 * What a suspended execution waits for, as facts and as a sentence: each wait with the signals it has and needs, and
 * what happens when it times out. Other gates are judged elsewhere.
 */
import type { Json } from '../../contract/json.ts';
import type { CountCondition, CountedBy, TimeoutBehaviour, WaitCondition } from '../../contract/signals.ts';
import type { TopicCondition } from '../../contract/topics.ts';
import type { BlockingReason } from '../../contract/states.ts';
import { leavesOf } from '../conditions.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { counted, firstOf, quoted } from '../wording.ts';

export interface OpenWait {
  name: string;
  key: string;
  /** Null without a timeout; negative when a timer is late. */
  timeoutInMs: number | null;
  onTimeout: TimeoutBehaviour;
  condition: WaitCondition;
  /** How many satisfiers each leaf of the condition has, in order; only of the first leaves. */
  counts: readonly number[];
  /** Of a wait for a message: whether there is one that its run may not receive, having received `handed`. */
  messages?: { isKept: boolean; handed: number } | null;
}

export interface SuspensionFacts {
  suspendedAtMs: number;
  suspendedAgoMs: number;
  /** How long until a sleep beside the waits is due. */
  wakeInMs: number | null;
  waits: readonly OpenWait[];
}

const AWAITED: Partial<Record<BlockingReason, string>> = {
  waiting_for_approval: 'an approval',
  waiting_for_callback: 'a callback',
  waiting_for_tool_result: 'a tool result',
  paused_by_operator: 'an operator',
};
const ON_TIMEOUT: Record<TimeoutBehaviour, string> = {
  fail: 'it fails',
  cancel: 'it is cancelled',
  expire: 'it expires',
  resume: 'it resumes',
  escalate: 'it is escalated to an operator',
};
const SHOWN = 'see flowfabric waitpoints list';
/** What waits that take something wait for, and how to give it. */
const TAKEN: Readonly<Record<string, readonly [string, string]>> = {
  message: ['a message', 'see flowfabric send'],
  topic: ['a topic', 'see flowfabric publish'],
};

/** How long until the next timeout or sleep is due, or null when there is none. */
export function nextTimeMs({ wakeInMs, waits }: SuspensionFacts): number | null {
  const times = [wakeInMs, ...waits.map(({ timeoutInMs }) => timeoutInMs)].filter((time) => time !== null);
  return times.length === 0 ? null : Math.min(...times);
}

export function tellSuspension(reason: BlockingReason, suspension: SuspensionFacts | null): string {
  const awaited = AWAITED[reason] ?? 'a signal';
  if (suspension === null) return `It is suspended, waiting for ${awaited}; ${SHOWN}.`;
  const { suspendedAgoMs, wakeInMs, waits } = suspension;
  const told = firstOf(waits.map(waitText), '; ');
  const woken = wakeInMs === null ? '' : `; in any case it resumes ${inTime(wakeInMs)}`;
  const kinds = new Set(waits.map(({ condition }) => condition.kind));
  const [what, hint] = (kinds.size === 1 && TAKEN[[...kinds][0]!]) || [awaited, SHOWN];
  return `Suspended for ${shortDuration(suspendedAgoMs)}, waiting for ${what}: ${told}${woken}; ${hint}.`;
}

/** The same for programs. */
export function suspensionFacts(
  reason: BlockingReason,
  suspension: SuspensionFacts | null,
): Record<string, Json> {
  if (suspension === null) return { reason };
  const { suspendedAtMs, suspendedAgoMs, wakeInMs, waits } = suspension;
  return { reason, suspendedAtMs, suspendedAgoMs, wakeInMs, waits: waits.map(waitFacts) };
}

/** Of a run that has received as many messages as it may while more are there; null for any other. */
export interface FullRun {
  mailbox: string;
  received: number;
}

export function runFacts(suspension: SuspensionFacts | null): FullRun | null {
  for (const { condition, messages } of suspension?.waits ?? [])
    if (condition.kind === 'message' && messages?.isKept)
      return { mailbox: condition.mailbox, received: messages.handed };
  return null;
}

export function tellRun({ mailbox, received }: FullRun): string {
  const full = `This run has received ${counted(received, 'message')}, as many as a run can, and more wait in ${quoted(mailbox)}`;
  return `${full}; its handler must return ctx.continueAs(…) sooner: see ctx.inbox(…).shouldContinue.`;
}

function waitFacts({ name, key, timeoutInMs, onTimeout, condition, counts }: OpenWait): Json {
  return { name, key, timeoutInMs, onTimeout, condition: jsonOf(condition), counts: [...counts] };
}

function jsonOf(condition: WaitCondition): Json {
  if (condition.kind === 'message' || condition.kind === 'topic') return { ...condition };
  if (condition.kind !== 'count') return { kind: condition.kind, of: condition.of.map(jsonOf) };
  return { ...condition, waitpoints: [...condition.waitpoints] };
}

function waitText({ name, key, timeoutInMs, onTimeout, condition, counts }: OpenWait): string {
  const which = key === '' ? quoted(name) : `${quoted(name)} (${quoted(key)})`;
  const end =
    timeoutInMs === null ? '' : ` (times out ${inTime(timeoutInMs)}, then ${ON_TIMEOUT[onTimeout]})`;
  if (condition.kind === 'topic') return `${quoted(condition.topic)}${end}`;
  return `${which} ${conditionText(condition, counts)}${end}`;
}

/** Conditions that are nested deeper are only counted. */
function conditionText(condition: Exclude<WaitCondition, TopicCondition>, counts: readonly number[]): string {
  if (condition.kind === 'message') return `needs a message in ${quoted(condition.mailbox)}`;
  if (condition.kind === 'count') return `has ${leafText(condition, counts[0])}`;
  const left = [...counts];
  const members = condition.of.map((member) => {
    const [count] = left.splice(0, leavesOf(member).length);
    if (member.kind === 'count') return leafText(member, count);
    return `${member.kind} of ${counted(member.of.length, 'condition')}`;
  });
  return `needs ${condition.kind} of (${firstOf(members, ', ')})`;
}

const DISTINCT: Record<CountedBy, string> = {
  signals: ' at ',
  waitpoints: ' at distinct waitpoints among ',
  sources: ' from distinct sources at ',
};

function leafText({ n, by, waitpoints, match }: CountCondition, count: number | undefined): string {
  const so = count === undefined ? '' : `${count} of `;
  const named = match === undefined ? '' : ` named ${quoted(match)}`;
  return `${so}${counted(n, 'signal')}${named}${DISTINCT[by]}${firstOf([...new Set(waitpoints)].map(quoted), ', ')}`;
}

function inTime(ms: number): string {
  return ms > 0 ? `in ${shortDuration(ms)}` : 'within about a second';
}
