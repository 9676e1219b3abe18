/**
 * What keeps an execution from running, from facts alone: each gate's sentence and numbers, and their order.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GATES, type Gate, type GateName } from '../../contract/operations.ts';
import type { StateVector } from '../../contract/states.ts';
import { judgeGates, type GateFacts, type WorkerGroup } from './gates.ts';
import { SITUATIONS } from '../situations.ts';
import type { SuspensionFacts } from './suspended.ts';
import { resultOf, TRANSITIONS, type TransitionName } from '../transitions.ts';

const after = (name: TransitionName): StateVector => resultOf(TRANSITIONS[name], 'attempt_interrupted');
const WAITING = after('submit');
const RUNNING = after('claim');
const DELAYED = after('submit_delayed');
const ASLEEP = after('delay');
const BACKING_OFF = after('retry');
const AWAITING = after('await_children');
const SUSPENDED = after('suspend_for_approval');
const RESTING = after('resume_later');
const FAILED = after('fail');
const FREE: WorkerGroup = {
  kinds: ['mail'],
  lanes: null,
  capabilities: ['gpu'],
  count: 1,
  free: 1,
  stopping: 0,
};
const free = (change: Partial<WorkerGroup>): WorkerGroup => ({ ...FREE, ...change });
const PAUSE = { pausedAtMs: 9, pausedAgoMs: 11_400_000, by: 'ada', reason: 'the server\nis down' };
const UNTOLD = { pausedAtMs: null, pausedAgoMs: null, by: null, reason: null };

/** Claimable, alone in its queue, with a free worker that fits. */
function facts(change: Partial<GateFacts> = {}): GateFacts {
  return {
    state: WAITING,
    attemptIndex: 0,
    route: { routeId: 1, lane: 'slow', kind: 'mail', capabilities: ['gpu'] },
    lanePause: null,
    lease: null,
    eligibleInMs: null,
    deadlineInMs: null,
    lastFailure: null,
    children: null,
    join: null,
    suspension: null,
    sessions: [],
    setbacks: [],
    end: null,
    workers: [FREE],
    queue: { ahead: 0, isCapped: false },
    ...change,
  };
}

const holders = (gates: readonly Gate[]) => gates.filter(({ holds }) => holds).map(({ gate }) => gate);
const held = (change: Partial<GateFacts>) => holders(judgeGates(facts(change)));

function gateOf(name: GateName, change: Partial<GateFacts>): Gate {
  return judgeGates(facts(change)).find(({ gate }) => gate === name)!;
}

const lease = (expiresInMs: number) => ({ workerInstanceId: 'w-1', expiresInMs, silentForMs: 9_000 });
const children = (open: number, needed = 3) => ({
  needed,
  total: 3,
  open,
  firstOpen: (['{fp:1}:a', '{fp:2}:b'] as const).slice(0, open),
});
const suspension = (timeoutInMs: number | null): SuspensionFacts => ({
  suspendedAtMs: 1,
  suspendedAgoMs: 5_000,
  wakeInMs: null,
  waits: [{ name: 'boss', key: '', timeoutInMs, onTimeout: 'fail', condition: ONE_SIGNAL, counts: [0] }],
});
const ONE_SIGNAL = { kind: 'count', n: 1, by: 'signals', waitpoints: ['ok'] } as const;
const setback = (reconciler: string, retryInMs: number) => ({
  reconciler,
  failures: 3,
  errorCode: 'contention',
  retryInMs,
});

describe('a gate that holds explains why', () => {
  it.each<[GateName, string, Partial<GateFacts>]>([
    [
      'ended',
      'It failed 2h05m ago (no such user); replay it to run it again.',
      {
        state: FAILED,
        end: { outcome: 'failed', endedAtMs: 1, endedAgoMs: 7_512_345, message: 'no  such\nuser', by: null },
      },
    ],
    [
      'running',
      'Worker w-1 is running it; its lease expires in 25s unless the worker renews it.',
      { state: RUNNING, lease: lease(25_000) },
    ],
    [
      'running',
      'The lease of worker w-1 expired 300ms ago and is cleaned up within about a second.',
      { state: RUNNING, lease: lease(-300) },
    ],
    [
      'running',
      'The lease of worker w-1 expired 1m ago and could not be cleaned up so far.',
      { state: RUNNING, lease: lease(-60_000), setbacks: [setback('expired-leases', 500)] },
    ],
    [
      'setback',
      'Reconciler due-timers failed on it 3 times (contention) and retries in 4s.',
      { state: DELAYED, eligibleInMs: -10, setbacks: [setback('due-timers', 4_000)] },
    ],
    ['delayed', 'Its start delay ends in 4m10s.', { state: DELAYED, eligibleInMs: 250_999 }],
    ['delayed', 'Its sleep ends in 3d.', { state: ASLEEP, eligibleInMs: 259_200_000 }],
    [
      'delayed',
      'Its sleep ended 20ms ago, and it is queued within about a second.',
      { state: ASLEEP, eligibleInMs: -20 },
    ],
    [
      'delayed',
      'Its sleep ends in 1m, or when enough of its children have finished.',
      { state: ASLEEP, eligibleInMs: 60_000, children: children(2) },
    ],
    [
      'delayed',
      'Its start delay ends in 1m, but its deadline is in 5s.',
      { state: DELAYED, eligibleInMs: 60_000, deadlineInMs: 5_000 },
    ],
    ['delayed', 'The delay before it resumes ends in 5s.', { state: RESTING, eligibleInMs: 5_000 }],
    [
      'backing_off',
      'Attempt 2 failed (boom); the backoff before attempt 3 ends in 9s.',
      {
        state: BACKING_OFF,
        attemptIndex: 2,
        eligibleInMs: 9_000,
        lastFailure: { attemptIndex: 1, message: 'boom', category: 'c' },
      },
    ],
    [
      'waiting_children',
      'It is waiting for all 3 of its children to finish; 0 finished so far, open: {fp:1}:a, {fp:2}:b and 1 more.',
      { state: AWAITING, children: children(3) },
    ],
    [
      'waiting_children',
      'It is waiting for 2 of its 3 children to finish or its sleep to end; 1 finished so far, open: {fp:1}:a, {fp:2}:b.',
      { state: ASLEEP, eligibleInMs: 60_000, children: children(2, 2) },
    ],
    [
      'waiting_children',
      'It is waiting for 2 of its 3 children to finish or one of its waits to finish; 1 finished so far, open: {fp:1}:a, {fp:2}:b.',
      { state: SUSPENDED, suspension: suspension(null), children: children(2, 2) },
    ],
    [
      'waiting_children',
      'It waited for 2 of its 3 children, which have finished; it resumes within about a second.',
      { state: AWAITING, children: children(1, 2) },
    ],
    [
      'lane_paused',
      'Lane slow has been paused for 3h10m by ada (the server is down); nothing is claimed from it until it is resumed.',
      { lanePause: PAUSE },
    ],
    [
      'lane_paused',
      'Lane slow is paused; nothing is claimed from it until it is resumed.',
      { lanePause: UNTOLD },
    ],
    ['no_worker', 'No worker has sent a heartbeat in the last 30s.', { workers: [] }],
    ['no_worker', 'The only live worker does not handle mail.', { workers: [{ ...FREE, kinds: [] }] }],
    ['no_worker', 'None of the 3 live workers handles mail.', { workers: [free({ count: 3, kinds: [] })] }],
    [
      'no_worker',
      'The workers that handle mail do not serve lane slow.',
      { workers: [free({ lanes: [] }), free({ kinds: [] })] },
    ],
    [
      'no_worker',
      'The workers that handle mail on lane slow lack the capabilities gpu.',
      { workers: [{ ...FREE, capabilities: [] }] },
    ],
    [
      'workers_busy',
      'All live workers that can run it were busy at their last heartbeat: 2 full, 1 stopping.',
      { workers: [{ ...FREE, count: 3, free: 0, stopping: 1 }] },
    ],
    [
      'queued',
      'It is queued behind 12 executions of the same lane, kind and capabilities.',
      { queue: { ahead: 12, isCapped: false } },
    ],
    [
      'queued',
      'It is queued behind at least 1000 executions of the same lane, kind and capabilities.',
      { queue: { ahead: 1_000, isCapped: true } },
    ],
  ])('%s: %s', (name, detail, change) => {
    expect(gateOf(name, change)).toMatchObject({ holds: true, detail });
  });

  it('and shortens a long failure message, without splitting a character', () => {
    const end = {
      outcome: 'failed',
      endedAtMs: 1,
      endedAgoMs: 0,
      message: '💥'.repeat(300),
      by: null,
    } as const;
    const { facts: told } = gateOf('ended', { state: FAILED, end });
    expect(told['message']).toBe(`${'💥'.repeat(199)}…`);
  });
});

describe('what no worker offers', () => {
  it.each<[string, WorkerGroup[], object]>([
    ['is any worker', [], { lacking: 'workers', live: 0 }],
    ['is the kind', [{ ...FREE, kinds: [] }], { lacking: 'kind', live: 1 }],
    ['is the lane', [{ ...FREE, lanes: [] }], { lacking: 'lane', live: 1 }],
    [
      'is what the closest match lacks',
      [free({ capabilities: [] }), free({ capabilities: ['gpu'] })],
      { lacking: 'capabilities', live: 2, missingCapabilities: ['eu'] },
    ],
  ])('%s', (_, workers, told) => {
    const route = { routeId: 1, lane: 'slow', kind: 'mail', capabilities: ['eu', 'gpu'] };
    expect(gateOf('no_worker', { route, workers })).toMatchObject({ holds: true, facts: told });
  });

  it('is nothing when one worker offers all of it, on every lane or on this one', () => {
    expect(held({ workers: [FREE] })).toEqual([]);
    expect(held({ workers: [{ ...FREE, lanes: ['slow'] }] })).toEqual([]);
  });

  it('may be offered by two workers in part: then neither can run it', () => {
    const workers = [free({ lanes: [] }), free({ capabilities: [] })];
    expect(held({ workers })).toEqual(['no_worker']);
  });
});

describe('which gates hold', () => {
  it.each<[string, Partial<GateFacts>, GateName[]]>([
    ['nothing holds an execution that a worker should claim any moment', {}, []],
    [
      'a delayed execution in a paused lane without workers shows all three',
      { state: DELAYED, eligibleInMs: 5, lanePause: PAUSE, workers: [] },
      ['delayed', 'lane_paused', 'no_worker'],
    ],
    [
      'busy workers do not matter before it is claimable',
      { state: DELAYED, eligibleInMs: 5, workers: [{ ...FREE, free: 0 }], queue: null },
      ['delayed'],
    ],
    [
      'a paused lane holds waiting executions, not running ones',
      { state: RUNNING, lease: lease(5), lanePause: PAUSE, workers: [] },
      ['running'],
    ],
    [
      'nothing else matters to a finished execution',
      { state: FAILED, lanePause: PAUSE, workers: [], queue: null, setbacks: [setback('due-timers', 5)] },
      ['ended'],
    ],
    [
      'busy workers come before the queue',
      { workers: [{ ...FREE, free: 0 }], queue: { ahead: 2, isCapped: false } },
      ['workers_busy', 'queued'],
    ],
    [
      'a sleep that children may cut short shows both',
      { state: ASLEEP, eligibleInMs: 5, children: children(2) },
      ['delayed', 'waiting_children'],
    ],
    [
      'a suspended execution also needs its lane and a worker to resume',
      { state: SUSPENDED, suspension: suspension(5), lanePause: PAUSE, workers: [], queue: null },
      ['suspended', 'lane_paused', 'no_worker'],
    ],
  ])('%s', (_, change, expected) => {
    expect(held(change)).toEqual(expected);
  });

  it.each<[string, Partial<GateFacts>, GateName[]]>([
    [
      'of a reconciler it does not depend on does not hold',
      { state: DELAYED, eligibleInMs: -5, setbacks: [setback('expired-leases', 900)] },
      ['delayed'],
    ],
    [
      'that ends before its delay does not hold',
      { state: DELAYED, eligibleInMs: 5_000, setbacks: [setback('due-timers', 900)] },
      ['delayed'],
    ],
    [
      'that lasts longer than its delay holds',
      { state: DELAYED, eligibleInMs: 5_000, setbacks: [setback('due-timers', 9_000)] },
      ['setback', 'delayed'],
    ],
    ['of a claimable execution does not hold', { setbacks: [setback('due-timers', 900)] }, []],
    [
      'of a live lease does not hold',
      { state: RUNNING, lease: lease(5), setbacks: [setback('expired-leases', 900)] },
      ['running'],
    ],
    [
      'of the wake-up by a child holds',
      { state: AWAITING, children: children(1, 2), setbacks: [setback('due-timers', 900)] },
      ['setback', 'waiting_children'],
    ],
    [
      'of a suspension without a timeout does not hold',
      { state: SUSPENDED, suspension: suspension(null), setbacks: [setback('due-timers', 900)] },
      ['suspended'],
    ],
    [
      'of a wait that timed out holds',
      { state: SUSPENDED, suspension: suspension(-5), setbacks: [setback('due-timers', 900)] },
      ['setback', 'suspended'],
    ],
  ])('a setback %s', (_, change, expected) => {
    expect(held(change)).toEqual(expected);
  });
});

/** Every state vector the model allows. */
const STATES: StateVector[] = Object.values(SITUATIONS).flatMap(
  ({ blockingReasons, attemptStates, ...situation }) =>
    blockingReasons.flatMap((blockingReason) =>
      attemptStates.map((attemptState) => ({ ...situation, blockingReason, attemptState })),
    ),
);

const ms = fc.integer({ min: -100_000, max: 100_000 });
const words = (word: string) => fc.constantFrom<string[]>([], [word], ['other', word]);
const anyFacts: fc.Arbitrary<GateFacts> = fc.record({
  state: fc.constantFrom(...STATES),
  attemptIndex: fc.nat(5),
  route: fc.constant(facts().route),
  lanePause: fc.constantFrom(null, PAUSE, UNTOLD),
  lease: fc.option(ms.map((left) => ({ ...lease(left), silentForMs: left }))),
  eligibleInMs: fc.option(ms),
  deadlineInMs: fc.option(ms),
  lastFailure: fc.option(fc.constant({ attemptIndex: 1, message: 'boom', category: null })),
  children: fc.option(fc.nat(3).map((open) => children(open))),
  join: fc.constant(null),
  suspension: fc.option(fc.option(ms).map(suspension)),
  sessions: fc.constantFrom([], [{ pid: 7, ageMs: 40_000, doing: 'step' } as const]),
  setbacks: fc.array(fc.tuple(fc.constantFrom('due-timers', 'expired-leases'), ms).map((x) => setback(...x))),
  end: fc.option(
    fc.constant({ outcome: 'failed', endedAtMs: 1, endedAgoMs: 1, message: 'm', by: null } as const),
  ),
  workers: fc.array(
    fc.record({
      kinds: words('mail'),
      lanes: fc.option(words('slow')),
      capabilities: words('gpu'),
      count: fc.constant(3),
      free: fc.nat(3),
      stopping: fc.constant(0),
    }),
  ),
  queue: fc.option(fc.record({ ahead: fc.nat(3), isCapped: fc.boolean() })),
});

describe('whatever the facts', () => {
  it('every gate is judged once, in order, with one sentence', () => {
    fc.assert(
      fc.property(anyFacts, (some) => {
        const gates = judgeGates(some);
        expect(gates.map(({ gate }) => gate)).toEqual(GATES);
        for (const { detail } of gates) expect(detail).toMatch(/^[A-Z0-9].*[^.]\.$/);
      }),
    );
  });

  it('sessions aside, finished executions are held by that alone, running ones by that first, others by neither', () => {
    fc.assert(
      fc.property(anyFacts, (some) => {
        const [first, ...others] = holders(judgeGates(some)).filter((gate) => gate !== 'held');
        expect(first === 'ended').toBe(some.state.lifecyclePhase === 'terminal');
        expect(first === 'running').toBe(some.state.lifecyclePhase === 'active');
        if (first === 'ended') expect(others).toEqual([]);
        for (const gate of ['ended', 'running']) expect(others).not.toContain(gate);
      }),
    );
  });

  it('no worker and busy workers exclude each other', () => {
    fc.assert(
      fc.property(anyFacts, (some) => {
        const found = holders(judgeGates(some));
        expect(found.includes('no_worker') && found.includes('workers_busy')).toBe(false);
      }),
    );
  });
});
