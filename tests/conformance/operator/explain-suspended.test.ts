/**
 * Why a suspended execution does not run, on a real engine: what each wait has of what it needs, and what happens when
 * it times out. The sentences themselves are tested with the model.
 */
import { describe, expect, it } from 'vitest';
import type { Explanation } from '../../../src/contract/operations.ts';
import type { SignalCondition, SuspendRequest } from '../../../src/contract/signals.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const MINUTE_MS = 60_000;

type Explained = Extract<Explanation, { outcome: 'explained' }>;

async function explain(id: ExecutionId): Promise<Explained> {
  const answer = await bench.engine.executions.explain(id);
  if (answer.outcome !== 'explained') throw new Error(`${id} was not found`);
  return answer;
}

/** No worker is registered, which holds waiting executions too. */
const holders = ({ gates }: Explained) =>
  gates.filter(({ gate, holds }) => holds && gate !== 'no_worker').map(({ gate }) => gate);

async function suspended(request: SuspendRequest, claim?: Claim): Promise<ExecutionId> {
  const held = claim ?? (await bench.running());
  expect(await bench.port.suspend(held, request)).toMatchObject({ outcome: 'suspended' });
  return held.executionId;
}

const approve = (id: ExecutionId, waitpoint: string, by: string, name = 'approved') =>
  bench.engine.waitpoints.approve(id, waitpoint, { by, name });

/** Two people, each of whom counts once. */
const TWO: SignalCondition = { kind: 'count', n: 2, by: 'sources', waitpoints: ['desk'], match: 'approved' };
const ONE: SignalCondition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['veto'] };

describe('a suspension', () => {
  it('holds, and reports what each wait has received', async () => {
    const id = await suspended({
      waits: [
        {
          name: 'boss',
          key: 'k',
          condition: TWO,
          timeoutMs: 10 * MINUTE_MS,
          onTimeout: 'expire',
          reason: 'approval',
        },
      ],
    });
    await approve(id, 'desk', 'ann');
    await approve(id, 'desk', 'ann');
    await approve(id, 'desk', 'bob', 'refused');
    await bench.database.moveClock(MINUTE_MS);
    const answer = await explain(id);
    expect(answer.state).toBe('suspended');
    expect(holders(answer)).toEqual(['suspended']);
    const { detail, facts } = answer.holding!;
    expect(detail).toMatch(
      /^Suspended for \d+m(?:\d+s)?, waiting for an approval: boss \(k\) has 1 of 2 signals named approved from distinct sources at desk \(times out in \d+m(?:\d+s)?, then it expires\); see flowfabric waitpoints list\.$/,
    );
    expect(facts).toMatchObject({
      reason: 'waiting_for_approval',
      wakeInMs: null,
      waits: [{ name: 'boss', key: 'k', onTimeout: 'expire', condition: TWO, counts: [1] }],
    });
    await approve(id, 'desk', 'bob');
    const after = await explain(id);
    expect(after.state).toBe('waiting');
    expect(after.gates.find(({ gate }) => gate === 'suspended')).toMatchObject({
      holds: false,
      detail: 'It is not suspended.',
      facts: {},
    });
  });

  it('counts each leaf of each wait as the engine does, in the order they are written', async () => {
    const by = (counted: 'signals' | 'waitpoints' | 'sources', n: number): SignalCondition => ({
      kind: 'count',
      n,
      by: counted,
      waitpoints: ['x', 'y', 'x'],
    });
    const condition: SignalCondition = {
      kind: 'all',
      of: [
        by('signals', 9),
        { kind: 'any', of: [by('waitpoints', 2), { kind: 'all', of: [by('sources', 9)] }] },
        { kind: 'count', n: 1, by: 'signals', waitpoints: ['z'] },
      ],
    };
    const id = await suspended({
      waits: [
        { name: 'first', condition },
        { name: 'second', condition: ONE },
      ],
    });
    for (const [waitpoint, who] of [
      ['x', 'ann'],
      ['x', 'bob'],
      ['y', 'ann'],
    ] as const) {
      await approve(id, waitpoint, who);
    }
    const { facts, detail } = (await explain(id)).holding!;
    expect(facts['waits']).toMatchObject([
      { name: 'first', timeoutInMs: null, condition, counts: [3, 2, 2, 0] },
      { name: 'second', counts: [0] },
    ]);
    expect(detail).toContain(
      'first needs all of (3 of 9 signals at x, y, any of 2 conditions, 0 of 1 signal at z); ' +
        'second has 0 of 1 signal at veto;',
    );
  });

  it('is shown beside the children and the time that may come first', async () => {
    const claim = await bench.running();
    const spawned = await bench.port.spawn(claim, [{ kind: newKind() }]);
    if (spawned.outcome !== 'spawned') throw new Error('the parent lost its lease');
    const executionIds = spawned.children.map(({ executionId }) => executionId);
    const id = await suspended(
      { waits: [{ name: 'go', condition: ONE }], wakeInMs: MINUTE_MS, children: { executionIds, needed: 1 } },
      claim,
    );
    const answer = await explain(id);
    expect(holders(answer)).toEqual(['waiting_children', 'suspended']);
    const gate = answer.gates.find((each) => each.gate === 'suspended')!;
    expect(gate.detail).toContain('; in any case it resumes in ');
    await bench.engine.cancel(executionIds[0]!, { reason: 'why' });
    expect(await bench.port.fireTimers()).toBe(1);
    expect(holders(await explain(id))).toEqual([]);
  });
});

describe('a wait that times out', () => {
  const waiting = (onTimeout: 'escalate' | 'resume' | 'fail', more: object = {}): SuspendRequest => ({
    waits: [{ name: 'go', condition: ONE, timeoutMs: MINUTE_MS, onTimeout, ...more }],
  });

  it('and is escalated keeps waiting, for an operator', async () => {
    const id = await suspended(waiting('escalate'));
    await bench.database.moveClock(MINUTE_MS);
    expect((await explain(id)).holding!.detail).toContain(
      'times out within about a second, then it is escalated to an operator);',
    );
    expect(await bench.port.fireTimers()).toBe(1);
    const { detail, facts } = (await explain(id)).holding!;
    expect(detail).toContain(
      ', waiting for an operator: go has 0 of 1 signal at veto; see flowfabric waitpoints list',
    );
    expect(facts).toMatchObject({ reason: 'paused_by_operator', waits: [{ timeoutInMs: null }] });
    await approve(id, 'veto', 'ann');
    expect(holders(await explain(id))).toEqual([]);
  });

  it('and resumes may have a delay first', async () => {
    const id = await suspended(waiting('resume', { resumeDelayMs: 5_000 }));
    await bench.database.moveClock(MINUTE_MS);
    expect(await bench.port.fireTimers()).toBe(1);
    const answer = await explain(id);
    expect(answer.state).toBe('delayed');
    expect(answer.holding).toMatchObject({ gate: 'delayed', facts: { reason: 'rest' } });
    expect(answer.holding!.detail).toMatch(/^The delay before it resumes ends in \d+m?s/);
    await bench.database.moveClock(5_000);
    expect(await bench.port.fireTimers()).toBe(1);
    expect(holders(await explain(id))).toEqual([]);
  });

  it('is handled by the reconcilers too, without a setback', async () => {
    const ids = [await suspended(waiting('escalate')), await suspended(waiting('fail'))];
    await bench.database.moveClock(MINUTE_MS);
    await bench.reconcile();
    expect(holders(await explain(ids[0]!))).toEqual(['suspended']);
    expect(await explain(ids[1]!)).toMatchObject({
      state: 'failed',
      holding: { detail: expect.stringContaining('its wait for go timed out') },
    });
    expect((await bench.snapshot(ids[0]!)).setbacks).toEqual([]);
  });
});
