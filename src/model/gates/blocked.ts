/**
 * What a member of a flow waits for before it may start, or why it never will, as facts and as a sentence: its join,
 * the edges resolved so far, and the upstreams that are pending. Other gates are judged elsewhere.
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
  /** The first few upstreams that are pending, and the first few whose edges are unmet. */
  pending: readonly Upstream[];
  unmet: readonly Upstream[];
}

const ENDS: readonly PublicState[] = ['completed', 'failed', 'cancelled', 'expired', 'skipped'];
const ASKED: Record<EdgeCondition, string> = {
  success: 'to complete',
  failure: 'to fail',
  always: 'to finish',
  skipped: 'to be skipped',
};
/** The reason code of a member that was skipped because its input would be too large. */
const TOO_LARGE = 'input_too_large';

/** Blocked by a join. An execution that waits for children has started, and is interrupted. */
export function isBlocked({ eligibilityState, attemptState }: StateVector): boolean {
  return (
    eligibilityState === 'blocked_by_dependencies' &&
    (attemptState === 'pending_first_attempt' || attemptState === 'pending_replay_attempt')
  );
}

export function tellJoin(join: JoinFacts | null): string {
  if (join === null) return 'It is waiting for members of its flow.';
  const { flow, isSealed, edges } = join;
  if (!isSealed) {
    const resolved = edges === 0 ? '' : `; its join has ${resolvedText(join)} so far`;
    return `It is waiting for the flow ${quoted(flow)} to be sealed${resolved}.`;
  }
  return `It is waiting for ${joinText(join)}; so far ${resolvedText(join)}${awaitedText(join)}.`;
}

/** Why it was skipped; null when the join does not tell. */
export function tellSkip(join: JoinFacts | null, message: string | null): string | null {
  if (message === TOO_LARGE) return 'the results passed to it are too large';
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
  if (kind === 'all') return edges === 1 ? 'its upstream member' : `all ${edges} upstream members`;
  return `${kind === 'any' ? 'any' : needed} of ${counted(edges, 'upstream member')}`;
}

function resolvedText({ edges, satisfied, failed, skipped }: JoinFacts): string {
  const unmet = [failed === 0 ? '' : `${failed} failed`, skipped === 0 ? '' : `${skipped} skipped`];
  const told = [`${satisfied} satisfied`, ...unmet, `${edges - satisfied - failed - skipped} pending`];
  return told.filter((part) => part !== '').join(', ');
}

function awaitedText({ pending, edges, satisfied, failed, skipped }: JoinFacts): string {
  if (pending.length === 0) return '';
  const more = moreText(edges - satisfied - failed - skipped - pending.length);
  return `: ${pending.map(pendingText).join(', ')}${more}`;
}

/** A finished upstream whose edge is pending is no error: a reconciler resolves it. */
function pendingText({ name, state, on }: Upstream): string {
  const asked = on === 'success' ? '' : ` ${ASKED[on]}`;
  const told = ENDS.includes(state) ? ', its edge is resolved within about a second' : '';
  return `${quoted(name)}${asked} (${state}${told})`;
}

function unmetText({ name, state, on }: Upstream): string {
  return `${quoted(name)} ${on === 'success' ? '' : `was expected ${ASKED[on]} but `}is ${state}`;
}

function moreText(more: number): string {
  return more > 0 ? ` and ${counted(more, 'other')}` : '';
}
