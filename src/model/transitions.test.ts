/**
 * The transition table: what each transition does, that it leads from one legal situation to another, and what holds
 * for the whole life of an execution, which a random walk through the table plays. The SQL copy of the table is
 * compared elsewhere.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LEASE_EVENTS, SIGNAL_EVENTS } from '../contract/events.ts';
import { ATTEMPT_STATES, type AttemptState, type StateVector } from '../contract/states.ts';
import { SITUATIONS, situationOf, type Situation, type SituationName } from './situations.ts';
import {
  completionEventOf,
  leavesSuspension,
  resultOf,
  TRANSITIONS,
  type Transition,
  type TransitionName,
} from './transitions.ts';

const ALL = Object.entries(TRANSITIONS) as [TransitionName, Transition][];
const NAMES = Object.keys(SITUATIONS) as SituationName[];
const TERMINAL = NAMES.filter((name) => SITUATIONS[name].lifecyclePhase === 'terminal');
const LIVE = NAMES.filter((name) => SITUATIONS[name].lifecyclePhase !== 'terminal');

interface Place {
  situation: SituationName;
  attemptState: AttemptState;
}

function placesOf(name: SituationName): Place[] {
  const { attemptStates }: Situation = SITUATIONS[name];
  return attemptStates.map((attemptState) => ({ situation: name, attemptState }));
}

function mayStart(transition: Transition, { situation, attemptState }: Place): boolean {
  const { from, fromAttempt = ATTEMPT_STATES } = transition;
  return from !== null && from.includes(situation) && fromAttempt.includes(attemptState);
}

/** Every situation and attempt state a transition may start from; none for those that create the row. */
function startsOf(transition: Transition): Place[] {
  return NAMES.flatMap(placesOf).filter((place) => mayStart(transition, place));
}

function resultsOf(transition: Transition): StateVector[] {
  const before =
    transition.from === null ? (['none'] as const) : startsOf(transition).map((at) => at.attemptState);
  return before.map((attemptState) => resultOf(transition, attemptState));
}

describe('the transition table', () => {
  // from, to | epoch, attempt, retry, reclaim | attempt outcome, lease event, completion event
  it.each<[TransitionName, SituationName[] | null, SituationName, number[], (string | null)[]]>([
    ['submit', null, 'waiting', [0, 0, 0, 0], [null, null, null]],
    ['submit_delayed', null, 'delayed', [0, 0, 0, 0], [null, null, null]],
    ['claim', ['waiting'], 'running', [1, 0, 0, 0], [null, 'acquired', null]],
    ['complete', ['running'], 'completed', [0, 0, 0, 0], ['success', null, 'success']],
    ['fail', ['running'], 'failed', [0, 0, 0, 0], ['failed', null, 'failed']],
    ['retry', ['running'], 'backing_off', [0, 1, 1, 0], ['failed', 'released', null]],
    ['release', ['running'], 'waiting', [0, 0, 0, 0], [null, 'released', null]],
    ['lapse', ['running'], 'waiting', [1, 1, 1, 1], ['interrupted', 'expired', null]],
    ['delay', ['running'], 'delayed', [0, 0, 0, 0], [null, 'released', null]],
    ['continue', ['running'], 'waiting', [0, 1, 0, 0], ['success', 'released', null]],
    ['continue_later', ['running'], 'delayed', [0, 1, 0, 0], ['success', 'released', null]],
    ['await_children', ['running'], 'waiting_children', [0, 0, 0, 0], [null, 'released', null]],
    ['wake', ['delayed', 'waiting_children'], 'waiting', [1, 0, 0, 0], [null, null, null]],
    ['expire', ['running'], 'expired', [1, 0, 0, 0], ['interrupted', 'expired', 'expired']],
    ['revoke', ['running'], 'waiting', [1, 1, 0, 1], ['interrupted', 'revoked', null]],
    ['exhaust_reclaims', ['running'], 'failed', [1, 0, 0, 0], ['interrupted', 'revoked', 'failed']],
    ['cancel', LIVE, 'cancelled', [1, 0, 0, 0], ['cancelled', 'revoked', 'cancelled']],
    ['cancel_unstarted', LIVE, 'cancelled', [1, 0, 0, 0], [null, null, 'cancelled']],
    ['fire_timer', ['delayed', 'backing_off', 'resume_delayed'], 'waiting', [0, 0, 0, 0], [null, null, null]],
    ['time_out_attempt', ['running'], 'backing_off', [1, 1, 1, 0], ['expired', 'revoked', null]],
    ['time_out', LIVE, 'expired', [1, 0, 0, 0], ['expired', 'revoked', 'expired']],
    ['time_out_unstarted', LIVE, 'expired', [1, 0, 0, 0], [null, null, 'expired']],
    ['change_priority', ['waiting'], 'waiting', [0, 0, 0, 0], [null, null, null]],
    ['replay', TERMINAL, 'waiting', [1, 1, 0, 0], [null, null, null]],
    ['suspend', ['running'], 'suspended', [0, 0, 0, 0], [null, 'released', null]],
    ['suspend_for_approval', ['running'], 'suspended', [0, 0, 0, 0], [null, 'released', null]],
    ['suspend_for_callback', ['running'], 'suspended', [0, 0, 0, 0], [null, 'released', null]],
    ['suspend_for_tool_result', ['running'], 'suspended', [0, 0, 0, 0], [null, 'released', null]],
    ['suspend_for_review', ['running'], 'suspended', [0, 0, 0, 0], [null, 'released', null]],
    ['escalate', ['suspended'], 'suspended', [0, 0, 0, 0], [null, null, null]],
    ['resume', ['suspended'], 'waiting', [1, 0, 0, 0], [null, null, null]],
    ['resume_later', ['suspended'], 'resume_delayed', [1, 0, 0, 0], [null, null, null]],
    ['fail_suspended', ['suspended'], 'failed', [1, 0, 0, 0], ['failed', null, 'failed']],
    ['submit_blocked', null, 'waiting_children', [0, 0, 0, 0], [null, null, null]],
    ['block', ['waiting'], 'waiting_children', [1, 0, 0, 0], [null, null, null]],
    ['unblock', ['waiting_children'], 'waiting', [1, 0, 0, 0], [null, null, null]],
    ['skip', ['waiting_children'], 'skipped', [1, 0, 0, 0], [null, null, 'skipped']],
    ['skip_unstarted', ['waiting_children'], 'skipped', [1, 0, 0, 0], [null, null, 'skipped']],
    ['reopen', ['skipped'], 'waiting_children', [1, 1, 0, 0], [null, null, null]],
  ])('knows what %s does', (name, from, to, steps, written) => {
    const transition: Transition = TRANSITIONS[name];
    expect(transition.from).toEqual(from);
    expect(transition.to).toBe(to);
    const { epochStep, attemptStep, retryStep, reclaimStep } = transition;
    expect([epochStep, attemptStep, retryStep, reclaimStep]).toEqual(steps);
    const { attemptOutcome, leaseEvent } = transition;
    expect([attemptOutcome, leaseEvent, completionEventOf(transition)]).toEqual(written);
  });

  it('is covered completely by the test above', () => {
    expect(ALL).toHaveLength(39);
  });
});

describe('every transition', () => {
  it.each(ALL)('leads to the situation it names, from every attempt state: %s', (_name, transition) => {
    const results = resultsOf(transition);
    expect(results.length).toBeGreaterThan(0);
    expect(new Set(results.map(situationOf))).toEqual(new Set([transition.to]));
  });

  it.each(ALL)(
    'can start in each situation it names, or shares it with one that can: %s',
    (_name, transition) => {
      const dead = (transition.from ?? []).filter(
        (name) =>
          !placesOf(name).some((place) =>
            ALL.some(([, other]) => other.to === transition.to && mayStart(other, place)),
          ),
      );
      expect(dead).toEqual([]);
    },
  );

  it.each(ALL)('writes only lease events of the vocabulary: %s', (_name, { leaseEvent }) => {
    expect([null, ...LEASE_EVENTS]).toContain(leaseEvent);
  });

  it('leaves a terminal execution unchanged, except for a replay', () => {
    const leaving = TERMINAL.flatMap(placesOf).flatMap((place) =>
      ALL.filter(([, transition]) => mayStart(transition, place)).map(([name]) => name),
    );
    expect(new Set(leaving)).toEqual(new Set(['replay', 'reopen']));
  });

  it('owes an operator event if it is caused by an operator, and no other does', () => {
    const told = ALL.filter(([, { operatorEvent }]) => operatorEvent !== null);
    expect(told.map(([name, { operatorEvent }]) => [name, operatorEvent])).toEqual([
      ['change_priority', 'priority_changed'],
      ['replay', 'replayed'],
      ['reopen', 'replayed'],
    ]);
  });

  it('owes a signal event if it enters, changes or resumes from a suspension, or begins a run, and no other does', () => {
    const told = ALL.filter(([, { signalEvent }]) => signalEvent !== null);
    expect(told.map(([name, { signalEvent }]) => [name, signalEvent])).toEqual([
      ['continue', 'continued'],
      ['continue_later', 'continued'],
      ['suspend', 'suspended'],
      ['suspend_for_approval', 'suspended'],
      ['suspend_for_callback', 'suspended'],
      ['suspend_for_tool_result', 'suspended'],
      ['suspend_for_review', 'suspended'],
      ['escalate', 'escalated'],
      ['resume', 'resumed'],
      ['resume_later', 'resumed'],
    ]);
    for (const [, { signalEvent }] of told) expect(SIGNAL_EVENTS).toContain(signalEvent);
  });

  it('that finishes an execution owes exactly one completion event, and no other does', () => {
    for (const [, transition] of ALL) {
      expect(completionEventOf(transition) !== null).toBe(TERMINAL.includes(transition.to));
    }
  });

  it('that returns a running execution to the queue or a timer owes an event about its lease', () => {
    const back = ALL.filter(([, { from, to }]) => from?.includes('running') && !TERMINAL.includes(to));
    expect(back.map(([name, { leaseEvent }]) => [name, leaseEvent])).toEqual([
      ['retry', 'released'],
      ['release', 'released'],
      ['delay', 'released'],
      ['continue', 'released'],
      ['continue_later', 'released'],
      ['await_children', 'released'],
      ['lapse', 'expired'],
      ['revoke', 'revoked'],
      ['time_out_attempt', 'revoked'],
      ['suspend', 'released'],
      ['suspend_for_approval', 'released'],
      ['suspend_for_callback', 'released'],
      ['suspend_for_tool_result', 'released'],
      ['suspend_for_review', 'released'],
    ]);
  });

  it('that takes a lease away advances the epoch, so that its holder can write nothing more', () => {
    const taking = ALL.filter(([, { leaseEvent }]) => leaseEvent === 'expired' || leaseEvent === 'revoked');
    expect(taking.map(([name, { epochStep }]) => [name, epochStep])).toEqual([
      ['lapse', 1],
      ['expire', 1],
      ['revoke', 1],
      ['exhaust_reclaims', 1],
      ['cancel', 1],
      ['time_out_attempt', 1],
      ['time_out', 1],
    ]);
  });

  it('by which the holder gives up its own lease keeps the epoch, so that a repeated call is recognised', () => {
    const own: TransitionName[] = ['complete', 'fail', 'retry', 'release', 'continue', 'delay', 'suspend'];
    expect(own.map((name) => TRANSITIONS[name].epochStep)).toEqual([0, 0, 0, 0, 0, 0, 0]);
  });

  it('that ends an attempt but not the execution, or re-opens it, advances to the next attempt, and no other does', () => {
    for (const [, { attemptOutcome, attemptStep, replayStep, to }] of ALL) {
      const isNext = replayStep === 1 || (attemptOutcome !== null && !TERMINAL.includes(to));
      expect(attemptStep === 1).toBe(isNext);
    }
  });

  it('fired by a timer keeps the attempt state for the next claim', () => {
    expect(TRANSITIONS.fire_timer.attemptState).toBeNull();
    for (const { attemptState } of startsOf(TRANSITIONS.fire_timer)) {
      expect(resultOf(TRANSITIONS.fire_timer, attemptState).attemptState).toBe(attemptState);
    }
  });
});

describe('a suspension', () => {
  it('has a reason for each kind of wait; an escalated one waits for an operator', () => {
    const reasons = ALL.filter(([, { to }]) => to === 'suspended').map(([name, transition]) => [
      name,
      resultOf(transition, 'attempt_interrupted').blockingReason,
    ]);
    expect(reasons).toEqual([
      ['suspend', 'waiting_for_signal'],
      ['suspend_for_approval', 'waiting_for_approval'],
      ['suspend_for_callback', 'waiting_for_callback'],
      ['suspend_for_tool_result', 'waiting_for_tool_result'],
      ['suspend_for_review', 'paused_by_operator'],
      ['escalate', 'paused_by_operator'],
    ]);
  });

  it('is left by each transition that may start in one and leads elsewhere, and by no other', () => {
    const [suspended] = placesOf('suspended');
    const leaving = ALL.filter(([, transition]) => leavesSuspension(transition)).map(([name]) => name);
    expect(leaving).toEqual(['cancel', 'time_out', 'resume', 'resume_later', 'fail_suspended']);
    for (const [name, transition] of ALL.filter(([, each]) => mayStart(each, suspended!))) {
      expect(leaving.includes(name)).toBe(transition.to !== 'suspended');
    }
  });

  it('advances the epoch when it is left, so that none of its timers matches any more', () => {
    const left = ALL.filter(([, transition]) => leavesSuspension(transition));
    for (const [, { epochStep }] of left) expect(epochStep).toBe(1);
  });
});

describe('cancelling', () => {
  it.each(LIVE)('is possible in exactly one way from every attempt state of %s', (situation) => {
    for (const place of placesOf(situation)) {
      const ways = ALL.filter(
        ([, transition]) => transition.to === 'cancelled' && mayStart(transition, place),
      );
      expect(ways.map(([name]) => name)).toEqual([
        place.attemptState === 'pending_first_attempt' ? 'cancel_unstarted' : 'cancel',
      ]);
    }
  });

  it('ends an attempt only if there is one', () => {
    expect(resultOf(TRANSITIONS.cancel, 'running_attempt').attemptState).toBe('attempt_terminal');
    expect(resultOf(TRANSITIONS.cancel_unstarted, 'pending_first_attempt').attemptState).toBe(
      'pending_first_attempt',
    );
  });
});

interface Life {
  place: Place;
  epoch: number;
  attempt: number;
  retries: number;
  reclaims: number;
  /** Attempts that started, with their outcomes; null while running or paused. */
  attempts: Map<number, string | null>;
  /** Every granted fence, as attempt and epoch. */
  fences: string[];
}

function born(transition: Transition): Life {
  const place = { situation: transition.to, attemptState: resultOf(transition, 'none').attemptState };
  return { place, epoch: 0, attempt: 0, retries: 0, reclaims: 0, attempts: new Map(), fences: [] };
}

/** What the engine does with the counters and the attempts, derived from the table alone. */
function step(life: Life, transition: Transition): Life {
  const { attemptState } = resultOf(transition, life.place.attemptState);
  const attempts = new Map(life.attempts);
  const isOpen = attempts.get(life.attempt) === null;
  if (isOpen && transition.attemptOutcome !== null) attempts.set(life.attempt, transition.attemptOutcome);
  const next: Life = {
    place: { situation: transition.to, attemptState },
    epoch: life.epoch + transition.epochStep,
    attempt: life.attempt + transition.attemptStep,
    retries: transition.replayStep + transition.runStep > 0 ? 0 : life.retries + transition.retryStep,
    reclaims: transition.replayStep + transition.runStep > 0 ? 0 : life.reclaims + transition.reclaimStep,
    attempts,
    fences: life.fences,
  };
  if (transition.to !== 'running') return next;
  if (!attempts.has(next.attempt)) attempts.set(next.attempt, null);
  return { ...next, fences: [...life.fences, `${next.attempt}/${next.epoch}`] };
}

/** Out of 300, so that a life is long enough to be interesting. */
const ENDING_PICKS = 20;

/**
 * Plays a life: each number picks one of the transitions that may follow, until none may. Only low picks may finish it.
 */
function play(birth: Transition, picks: readonly number[]): Life[] {
  const lives = [born(birth)];
  for (const pick of picks) {
    const life = lives.at(-1)!;
    const allowed = ALL.filter(([, transition]) => mayStart(transition, life.place));
    const open = pick < ENDING_PICKS ? allowed : allowed.filter(([, { to }]) => !TERMINAL.includes(to));
    const chosen = open[pick % Math.max(open.length, 1)];
    if (chosen === undefined) break;
    lives.push(step(life, chosen[1]));
  }
  return lives;
}

const anyLife = fc
  .tuple(
    fc.constantFrom(TRANSITIONS.submit, TRANSITIONS.submit_delayed),
    fc.array(fc.nat({ max: 299 }), { size: 'max', maxLength: 60 }),
  )
  .map(([birth, picks]) => play(birth, picks));

/** Holds for every stage of every life. */
function expectSound(life: Life): void {
  const { place, attempt, epoch, retries, reclaims, attempts, fences } = life;
  expect(new Set(fences).size).toBe(fences.length);
  expect(retries).toBeLessThanOrEqual(attempt);
  expect(reclaims).toBeLessThanOrEqual(epoch);
  expect(fences.length).toBeLessThanOrEqual(epoch);
  if (place.attemptState === 'pending_first_attempt') expect(attempts.has(attempt)).toBe(false);
  if (place.attemptState === 'running_attempt') expect(attempts.size).toBeGreaterThan(0);
  const open = [...attempts].filter(([, outcome]) => outcome === null).map(([index]) => index);
  const isOpen = ['running_attempt', 'attempt_interrupted'].includes(place.attemptState);
  expect(open).toEqual(isOpen ? [attempt] : []);
}

describe('a life made of any allowed transitions', () => {
  it('reaches every situation that a transition leads to, and no other', () => {
    const seen = new Set<SituationName>();
    fc.assert(
      fc.property(anyLife, (lives) => lives.forEach(({ place }) => seen.add(place.situation))),
      { numRuns: 500, seed: 1 },
    );
    expect([...seen].toSorted()).toEqual([...new Set(ALL.map(([, { to }]) => to))].toSorted());
  });

  it('grants no fence twice, leaves no earlier attempt open and keeps its counters consistent', () => {
    fc.assert(
      fc.property(anyLife, (lives) => lives.forEach(expectSound)),
      { numRuns: 300 },
    );
  });

  it('never decreases an epoch or an attempt, changes an outcome, or resets retries except by a replay or a new run', () => {
    fc.assert(
      fc.property(anyLife, (lives) => {
        for (const [index, later] of lives.slice(1).entries()) {
          const earlier = lives[index]!;
          expect(later.epoch).toBeGreaterThanOrEqual(earlier.epoch);
          expect(later.attempt).toBeGreaterThanOrEqual(earlier.attempt);
          const isNew =
            later.place.attemptState === 'pending_first_attempt' ||
            TERMINAL.includes(earlier.place.situation);
          if (!isNew) expect(later.retries).toBeGreaterThanOrEqual(earlier.retries);
          for (const [attempt, outcome] of earlier.attempts) {
            if (outcome !== null) expect(later.attempts.get(attempt)).toBe(outcome);
          }
        }
      }),
    );
  });

  it('can be cancelled at every moment before it finishes', () => {
    fc.assert(
      fc.property(anyLife, (lives) => {
        for (const { place } of lives) {
          const ways = ALL.filter(
            ([, transition]) => transition.to === 'cancelled' && mayStart(transition, place),
          );
          expect(ways).toHaveLength(TERMINAL.includes(place.situation) ? 0 : 1);
        }
      }),
    );
  });
});
