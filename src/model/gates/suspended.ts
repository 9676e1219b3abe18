/**
 * What a suspended execution waits for, as facts and as a sentence: each wait with what came of what it needs, and what happens when
 * its time is over. Which other gates hold is judged elsewhere.
 */
import type { Json } from '../../contract/json.ts';
import type { CountCondition, CountedBy, SignalCondition, TimeoutBehaviour } from '../../contract/signals.ts';
import type { BlockingReason } from '../../contract/states.ts';
import { leavesOf } from '../conditions.ts';
import { counted, firstOf, quoted, spoken } from '../wording.ts';

export interface OpenWait {
  name: string;
  key: string;
  /** Null: it has no time. Below zero, a timer is late. */
  timeoutInMs: number | null;
  onTimeout: TimeoutBehaviour;
  condition: SignalCondition;
  /** How many satisfiers each leaf of the condition has, in its order; the first so many of them. */
  counts: readonly number[];
}

export interface SuspensionFacts {
  suspendedAtMs: number;
  suspendedAgoMs: number;
  /** Until something is due that is waited for beside the waits. */
  wakeInMs: number | null;
  waits: readonly OpenWait[];
}

const AWAITED: Partial<Record<BlockingReason, string>> = {
  waiting_for_approval: 'an approval',
  waiting_for_callback: 'a callback',
  waiting_for_tool_result: 'the result of a tool',
  paused_by_operator: 'an operator',
};
const WITHOUT_THE_REST: Record<TimeoutBehaviour, string> = {
  fail: 'it fails',
  cancel: 'it is cancelled',
  expire: 'it expires',
  resume: 'it goes on',
  escalate: 'an operator is asked',
};
const SHOWN = 'flowfabric waitpoints list shows it';

/** Until the next of its times is over, or null when none is set. */
export function nextTimeMs({ wakeInMs, waits }: SuspensionFacts): number | null {
  const times = [wakeInMs, ...waits.map(({ timeoutInMs }) => timeoutInMs)].filter((time) => time !== null);
  return times.length === 0 ? null : Math.min(...times);
}

export function tellSuspension(reason: BlockingReason, suspension: SuspensionFacts | null): string {
  const awaited = `waits for ${AWAITED[reason] ?? 'a signal'}`;
  if (suspension === null) return `It is suspended and ${awaited}; ${SHOWN}.`;
  const { suspendedAgoMs, wakeInMs, waits } = suspension;
  const told = firstOf(waits.map(waitText), '; ');
  const woken = wakeInMs === null ? '' : `; in any case it goes on ${inTime(wakeInMs)}`;
  return `Suspended for ${spoken(suspendedAgoMs)}, it ${awaited}: ${told}${woken}; ${SHOWN}.`;
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

function waitFacts({ name, key, timeoutInMs, onTimeout, condition, counts }: OpenWait): Json {
  return { name, key, timeoutInMs, onTimeout, condition: jsonOf(condition), counts: [...counts] };
}

function jsonOf(condition: SignalCondition): Json {
  if (condition.kind !== 'count') return { kind: condition.kind, of: condition.of.map(jsonOf) };
  return { ...condition, waitpoints: [...condition.waitpoints] };
}

function waitText({ name, key, timeoutInMs, onTimeout, condition, counts }: OpenWait): string {
  const which = key === '' ? quoted(name) : `${quoted(name)} (${quoted(key)})`;
  const end =
    timeoutInMs === null
      ? ''
      : `, and without the rest ${WITHOUT_THE_REST[onTimeout]} ${inTime(timeoutInMs)}`;
  return `${which} ${conditionText(condition, counts)}${end}`;
}

/** Of what is nested deeper, only how much it is. */
function conditionText(condition: SignalCondition, counts: readonly number[]): string {
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
  waitpoints: ' at distinct waitpoints of ',
  sources: ' by distinct sources at ',
};

function leafText({ n, by, waitpoints, match }: CountCondition, count: number | undefined): string {
  const so = count === undefined ? '' : `${count} of `;
  const named = match === undefined ? '' : ` named ${quoted(match)}`;
  return `${so}${counted(n, 'signal')}${named}${DISTINCT[by]}${firstOf([...new Set(waitpoints)].map(quoted), ', ')}`;
}

function inTime(ms: number): string {
  return ms > 0 ? `in ${spoken(ms)}` : 'within about a second';
}
