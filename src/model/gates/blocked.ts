/**
 * What a member of a flow waits for before it may begin, or why it never will, as facts and as a sentence: its join, what it has heard
 * so far, and who is still to be heard of. Which other gates hold is judged elsewhere.
 */
import type { Json } from '../../contract/json.ts';
import type { EdgeCondition, FlowId, JoinKind } from '../../contract/flows.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import type { PublicState, StateVector } from '../../contract/states.ts';
import { counted, quoted } from '../wording.ts';

export interface Upstream {
  name: string;
  executionId: ExecutionId;
  state: PublicState;
  on: EdgeCondition;
}

export interface JoinFacts {
  flowId: FlowId;
  flow: string;
  isSealed: boolean;
  member: string;
  kind: JoinKind;
  /** How many edges it needs; of `all`, all of them. */
  needed: number;
  edges: number;
  satisfied: number;
  failed: number;
  skipped: number;
  /** The first few that were not heard of, and the first few that did not say what was asked of them. */
  pending: readonly Upstream[];
  unmet: readonly Upstream[];
}

const ENDS: readonly PublicState[] = ['completed', 'failed', 'cancelled', 'expired', 'skipped'];
const ASKED: Record<EdgeCondition, string> = {
  success: 'to complete',
  failure: 'to fail',
  always: 'to end',
  skipped: 'to be skipped',
};
/** How an end is worded that came of too much that was to be handed over. */
const TOO_LARGE = 'input_too_large';

/** Held by a join. What waits for children has begun, and is interrupted. */
export function isBlocked({ eligibilityState, attemptState }: StateVector): boolean {
  return (
    eligibilityState === 'blocked_by_dependencies' &&
    (attemptState === 'pending_first_attempt' || attemptState === 'pending_replay_attempt')
  );
}

export function tellJoin(join: JoinFacts | null): string {
  if (join === null) return 'It waits for members of its flow.';
  const { flow, isSealed, edges } = join;
  if (!isSealed) {
    const heard = edges === 0 ? '' : `; so far its join has ${heardText(join)}`;
    return `It waits for the flow ${quoted(flow)} to be sealed${heard}.`;
  }
  return `It waits for ${joinText(join)}; so far ${heardText(join)}${awaitedText(join)}.`;
}

/** Why it was skipped; null when the join does not say. */
export function tellSkip(join: JoinFacts | null, message: string | null): string | null {
  if (message === TOO_LARGE) return 'what it was to be handed is too large';
  if (join === null || join.unmet.length === 0) return null;
  const { unmet, failed, skipped } = join;
  const more = moreText(failed + skipped - unmet.length);
  return `its join (${joinText(join)}) became impossible: ${unmet.map(unmetText).join(', ')}${more}`;
}

/** The same for programs. */
export function joinFacts(join: JoinFacts | null): Record<string, Json> {
  if (join === null) return {};
  const { pending, unmet, edges, satisfied, failed, skipped, kind, needed, ...rest } = join;
  return {
    ...rest,
    join: kind,
    needed: kind === 'all' ? edges : needed,
    edges,
    satisfied,
    failed,
    skipped,
    pending: edges - satisfied - failed - skipped,
    waitsFor: pending.map((upstream) => ({ ...upstream })),
    unmet: unmet.map((upstream) => ({ ...upstream })),
  };
}

function joinText({ kind, needed, edges }: JoinFacts): string {
  if (kind === 'all') return edges === 1 ? 'the one it comes after' : `all of ${edges} it comes after`;
  return `${kind === 'any' ? 'any' : needed} of ${edges} it comes after`;
}

function heardText({ edges, satisfied, failed, skipped }: JoinFacts): string {
  const unmet = [failed === 0 ? '' : `${failed} failed`, skipped === 0 ? '' : `${skipped} skipped`];
  const told = [`${satisfied} satisfied`, ...unmet, `${edges - satisfied - failed - skipped} pending`];
  return told.filter((part) => part !== '').join(', ');
}

function awaitedText({ pending, edges, satisfied, failed, skipped }: JoinFacts): string {
  if (pending.length === 0) return '';
  const more = moreText(edges - satisfied - failed - skipped - pending.length);
  return `: ${pending.map(pendingText).join(', ')}${more}`;
}

/** An end that is still to be told is no mistake: whoever comes by tells it. */
function pendingText({ name, state, on }: Upstream): string {
  const asked = on === 'success' ? '' : ` ${ASKED[on]}`;
  const told = ENDS.includes(state) ? ', which it hears of within about a second' : '';
  return `${quoted(name)}${asked} (${state}${told})`;
}

function unmetText({ name, state, on }: Upstream): string {
  return `${quoted(name)} ${on === 'success' ? '' : `was ${ASKED[on]} and `}is ${state}`;
}

function moreText(more: number): string {
  return more > 0 ? ` and ${counted(more, 'other')}` : '';
}
