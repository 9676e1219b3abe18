/**
 * The legal combinations, written a second time and by hand, row by row, each with its public state. The model must
 * allow these and nothing else of the whole cross product.
 */
import { describe, expect, it } from 'vitest';
import {
  ATTEMPT_STATES,
  BLOCKING_REASONS,
  ELIGIBILITY_STATES,
  LIFECYCLE_PHASES,
  OWNERSHIP_STATES,
  TERMINAL_OUTCOMES,
  type AttemptState,
  type BlockingReason,
  type EligibilityState,
  type PublicState,
  type StateVector,
  type TerminalOutcome,
} from '../contract/states.ts';
import { publicState } from './public-state.ts';
import { SITUATIONS, situationOf, type Situation, type SituationName } from './situations.ts';

interface LegalRow {
  story: string;
  situation: SituationName;
  vector: StateVector;
  label: PublicState;
}

/** Being held does not depend on attempts: the next attempt is the same before and after. */
const KEPT: readonly AttemptState[] = [
  'pending_first_attempt',
  'pending_retry_attempt',
  'pending_replay_attempt',
  'attempt_interrupted',
];

function runnable(
  story: string,
  situation: SituationName,
  [eligibilityState, blockingReason]: readonly [EligibilityState, BlockingReason],
  label: PublicState,
  attemptStates: readonly AttemptState[],
): LegalRow[] {
  return attemptStates.map((attemptState) => ({
    story: `${story} (${attemptState})`,
    situation,
    vector: {
      lifecyclePhase: 'runnable',
      ownershipState: 'unowned',
      eligibilityState,
      blockingReason,
      terminalOutcome: 'none',
      attemptState,
    },
    label,
  }));
}

function suspended(blockingReason: BlockingReason): LegalRow {
  return {
    story: `suspended (${blockingReason})`,
    situation: 'suspended',
    vector: {
      lifecyclePhase: 'suspended',
      ownershipState: 'unowned',
      eligibilityState: 'not_applicable',
      blockingReason,
      terminalOutcome: 'none',
      attemptState: 'attempt_interrupted',
    },
    label: 'suspended',
  };
}

function finished(
  label: PublicState & SituationName,
  terminalOutcome: TerminalOutcome,
  attemptState: AttemptState,
): LegalRow {
  return {
    story: `${label} (${attemptState})`,
    situation: label,
    vector: {
      lifecyclePhase: 'terminal',
      ownershipState: 'unowned',
      eligibilityState: 'not_applicable',
      blockingReason: 'none',
      terminalOutcome,
      attemptState,
    },
    label,
  };
}

const READY = ['eligible_now', 'waiting_for_worker'] as const;
const DELAY = ['not_eligible_until_time', 'waiting_for_delay'] as const;
const BACKOFF = ['not_eligible_until_time', 'waiting_for_retry_backoff'] as const;
const RESUME_DELAY = ['not_eligible_until_time', 'waiting_for_resume_delay'] as const;
const CHILDREN = ['blocked_by_dependencies', 'waiting_for_children'] as const;

const LEGAL: readonly LegalRow[] = [
  ...runnable('created, ready', 'waiting', READY, 'waiting', ['pending_first_attempt']),
  ...runnable('backoff elapsed, or lease lost', 'waiting', READY, 'waiting', ['pending_retry_attempt']),
  ...runnable('replayed', 'waiting', READY, 'waiting', ['pending_replay_attempt']),
  ...runnable('resumed, ready', 'waiting', READY, 'waiting', ['attempt_interrupted']),
  ...runnable('created with a delay', 'delayed', DELAY, 'delayed', ['pending_first_attempt']),
  ...runnable('worker delayed itself', 'delayed', DELAY, 'delayed', ['attempt_interrupted']),
  ...runnable('retry backoff', 'backing_off', BACKOFF, 'delayed', ['pending_retry_attempt']),
  ...runnable('resumed with a delay', 'resume_delayed', RESUME_DELAY, 'delayed', ['attempt_interrupted']),
  ...runnable('unmet dependencies', 'waiting_children', CHILDREN, 'waiting_children', [
    'pending_first_attempt',
    'pending_replay_attempt',
  ]),
  ...runnable('worker waits for children', 'waiting_children', CHILDREN, 'waiting_children', [
    'attempt_interrupted',
  ]),
  ...runnable(
    'over budget',
    'blocked_by_budget',
    ['blocked_by_budget', 'waiting_for_budget'],
    'rate_limited',
    KEPT,
  ),
  ...runnable(
    'over quota',
    'blocked_by_quota',
    ['blocked_by_quota', 'waiting_for_quota'],
    'rate_limited',
    KEPT,
  ),
  ...runnable(
    'no capable worker',
    'blocked_by_route',
    ['blocked_by_route', 'waiting_for_capable_worker'],
    'waiting',
    KEPT,
  ),
  ...runnable('lane paused', 'lane_paused', ['blocked_by_lane_state', 'paused_by_policy'], 'waiting', KEPT),
  ...runnable('operator hold', 'held', ['blocked_by_operator', 'paused_by_operator'], 'waiting', KEPT),
  ...runnable(
    'flow is being cancelled',
    'held_by_flow_cancel',
    ['blocked_by_operator', 'paused_by_flow_cancel'],
    'waiting',
    KEPT,
  ),
  {
    story: 'running',
    situation: 'running',
    vector: {
      lifecyclePhase: 'active',
      ownershipState: 'leased',
      eligibilityState: 'not_applicable',
      blockingReason: 'none',
      terminalOutcome: 'none',
      attemptState: 'running_attempt',
    },
    label: 'active',
  },
  suspended('waiting_for_signal'),
  suspended('waiting_for_approval'),
  suspended('waiting_for_callback'),
  suspended('waiting_for_tool_result'),
  suspended('waiting_for_budget'),
  suspended('paused_by_operator'),
  suspended('paused_by_policy'),
  finished('completed', 'success', 'attempt_terminal'),
  finished('failed', 'failed', 'attempt_terminal'),
  finished('cancelled', 'cancelled', 'attempt_terminal'),
  finished('cancelled', 'cancelled', 'pending_first_attempt'),
  finished('expired', 'expired', 'attempt_terminal'),
  finished('expired', 'expired', 'pending_first_attempt'),
  finished('skipped', 'skipped', 'attempt_terminal'),
  finished('skipped', 'skipped', 'pending_first_attempt'),
];

function keyOf(vector: StateVector): string {
  return [
    vector.lifecyclePhase,
    vector.ownershipState,
    vector.eligibilityState,
    vector.blockingReason,
    vector.terminalOutcome,
    vector.attemptState,
  ].join(' ');
}

const DIMENSIONS = {
  lifecyclePhase: LIFECYCLE_PHASES,
  ownershipState: OWNERSHIP_STATES,
  eligibilityState: ELIGIBILITY_STATES,
  blockingReason: BLOCKING_REASONS,
  terminalOutcome: TERMINAL_OUTCOMES,
  attemptState: ATTEMPT_STATES,
} satisfies Record<keyof StateVector, readonly string[]>;

/** Every vector that can be constructed, legal or not. */
function crossProduct(): StateVector[] {
  let vectors: Partial<StateVector>[] = [{}];
  for (const [dimension, values] of Object.entries(DIMENSIONS)) {
    vectors = vectors.flatMap((vector) => values.map((value) => ({ ...vector, [dimension]: value })));
  }
  return vectors as StateVector[];
}

function vectorsOf(situation: Situation): StateVector[] {
  return situation.blockingReasons.flatMap((blockingReason) =>
    situation.attemptStates.map((attemptState) => ({
      lifecyclePhase: situation.lifecyclePhase,
      ownershipState: situation.ownershipState,
      eligibilityState: situation.eligibilityState,
      blockingReason,
      terminalOutcome: situation.terminalOutcome,
      attemptState,
    })),
  );
}

describe('a legal combination', () => {
  it.each(LEGAL)('has a name and a label: $story', ({ situation, vector, label }) => {
    expect(situationOf(vector)).toBe(situation);
    expect(publicState(vector, 1_000, 0)).toBe(label);
  });

  it('is in the list; everything else in the cross product is illegal', () => {
    const all = crossProduct();
    expect(all).toHaveLength(5 * 4 * 9 * 17 * 6 * 7);
    const legal = all.filter((vector) => situationOf(vector) !== undefined).map(keyOf);
    expect(legal.toSorted()).toEqual(LEGAL.map(({ vector }) => keyOf(vector)).toSorted());
  });
});

describe('situations', () => {
  it('are disjoint: no combination belongs to two of them', () => {
    const keys = Object.values(SITUATIONS).flatMap((situation) => vectorsOf(situation).map(keyOf));
    expect(keys).toHaveLength(new Set(keys).size);
  });

  it.each(Object.entries(SITUATIONS))('contain each of their own vectors: %s', (name, situation) => {
    expect(new Set(vectorsOf(situation).map(situationOf))).toEqual(new Set([name]));
  });

  it('are owned exactly while they are active', () => {
    const owned = Object.values(SITUATIONS).filter(({ ownershipState }) => ownershipState === 'leased');
    const active = Object.values(SITUATIONS).filter(({ lifecyclePhase }) => lifecyclePhase === 'active');
    expect(owned).toEqual(active);
  });

  it('never keep a lease that lapsed or was revoked', () => {
    const ownerships = new Set(Object.values(SITUATIONS).map(({ ownershipState }) => ownershipState));
    expect(ownerships).toEqual(new Set(['unowned', 'leased']));
  });

  it('have an outcome exactly when they are terminal', () => {
    for (const { lifecyclePhase, terminalOutcome } of Object.values<Situation>(SITUATIONS)) {
      expect(terminalOutcome !== 'none').toBe(lifecyclePhase === 'terminal');
    }
  });

  it('are terminal without an attempt only if no worker was needed to finish them', () => {
    const untouched = Object.entries(SITUATIONS)
      .filter(([, { lifecyclePhase }]) => lifecyclePhase === 'terminal')
      .filter(([, situation]) =>
        (situation.attemptStates as readonly AttemptState[]).includes('pending_first_attempt'),
      )
      .map(([name]) => name);
    expect(untouched).toEqual(['cancelled', 'expired', 'skipped']);
  });
});
