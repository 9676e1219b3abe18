/**
 * Submitting: what a caller gets back, what is stored, and how an id of its own makes a submit repeatable. Submitting
 * inside the caller's own transaction is in submit-inside.test.ts.
 */
import { describe, expect, it } from 'vitest';
import { uuidV7 } from '../../../src/contract/ids.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { claimRequest, misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const ID = /^\{fp:(0|[1-9]\d{0,2})\}:[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

function givenId(): ExecutionId {
  const random = crypto.getRandomValues(new Uint8Array(10));
  return `{fp:7}:${uuidV7(1_700_000_000_000, random)}`;
}

describe('one execution', () => {
  it('is returned with its id and waits for a worker', async () => {
    const answer = await bench.engine.executions.submit({ kind: newKind() });
    expect(answer).toEqual({ outcome: 'submitted', executionId: expect.stringMatching(ID) });
    expect(await bench.engine.executions.result(answer.executionId)).toEqual({
      outcome: 'pending',
      state: 'waiting',
    });
  });

  it('goes to the lane and the namespace `default` with priority 0 by default', async () => {
    const id = await bench.submit();
    expect(await bench.snapshot(id)).toMatchObject({
      lane: 'default',
      namespace: 'default',
      priority: 0,
      tags: {},
      capabilities: [],
    });
  });

  it('keeps every setting it was given', async () => {
    const said = {
      kind: newKind(),
      lane: 'mail',
      namespace: 'team-a',
      priority: 9_000,
      capabilities: ['gpu', 'eu'],
      tags: { 'app.tenant': 'ü', empty: '' },
    };
    const id = await bench.submit(said);
    expect(await bench.snapshot(id)).toMatchObject({ ...said, capabilities: ['eu', 'gpu'] });
  });

  const PAYLOADS: Record<string, unknown> = {
    'an object': { a: [1, 2.5, { b: null }], 'key with "quotes"': 'ünï \u{1F600}', '': false },
    'a list': [1, 'two', [3]],
    'a string': 'text',
    'a number': -12.5e-7,
    zero: 0,
    false: false,
    'an empty object': {},
  };
  for (const [name, payload] of Object.entries(PAYLOADS)) {
    it(`delivers its payload to the worker unchanged: ${name}`, async () => {
      const claim = await bench.running({ payload });
      expect(claim.payload).toStrictEqual(payload);
    });
  }

  it('may have names made to mislead', async () => {
    const hostile = `'"; DROP SCHEMA x -- \\ {} $1 %s`;
    const said = {
      kind: hostile,
      lane: hostile,
      namespace: hostile,
      tags: { [hostile]: hostile },
      payload: hostile,
    };
    const claim = await bench.running(said);
    expect(claim).toMatchObject(said);
    await bench.port.fail(claim, { message: hostile, category: hostile });
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({
      message: hostile,
      category: hostile,
    });
  });

  it('delivers a key named __proto__ as an ordinary key', async () => {
    const text = '{"__proto__":{"polluted":true}}';
    const claim = await bench.running({ payload: JSON.parse(text) });
    expect(JSON.stringify(claim.payload)).toBe(text);
  });

  it('has the payload null when none or null is given', async () => {
    expect((await bench.running()).payload).toBeNull();
    expect((await bench.running({ payload: null })).payload).toBeNull();
  });

  it('drops keys that are undefined and stores dates as strings', async () => {
    const at = new Date(0);
    const claim = await bench.running({ payload: { at, left: undefined } });
    expect(claim.payload).toEqual({ at: '1970-01-01T00:00:00.000Z' });
  });
});

describe('many executions', () => {
  it('of the same new kinds and lanes may be submitted by concurrent rivals', async () => {
    const requests = Array.from({ length: 30 }, () => ({ kind: newKind(), lane: newKind() }));
    const rivals = [bench.engine, await bench.another()];
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        rivals[index % 2]!.executions.submit(index % 3 === 0 ? requests : requests.toReversed()),
      ),
    );
    expect(answers.flat().filter(({ outcome }) => outcome === 'submitted')).toHaveLength(240);
    expect(await bench.claim({ kinds: requests.map(({ kind }) => kind), limit: 300 })).toHaveLength(240);
  });

  it('are returned in the order given, each with an id of its own', async () => {
    const kind = newKind();
    const answers = await bench.engine.executions.submit([
      { kind, payload: 1 },
      { kind, payload: 2 },
      { kind, payload: 3 },
    ]);
    const claims = await bench.claim({ kinds: [kind] });
    expect(answers.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted', 'submitted']);
    expect(claims.map(({ executionId, payload }) => ({ executionId, payload }))).toEqual(
      answers.map(({ executionId }, index) => ({ executionId, payload: index + 1 })),
    );
  });

  it('may be an empty list', async () => {
    expect(await bench.engine.executions.submit([])).toEqual([]);
  });

  it('may go to different kinds, lanes, namespaces and times', async () => {
    const [now, later] = [newKind(), newKind()];
    const answers = await bench.engine.executions.submit([
      { kind: now, lane: 'one', namespace: 'n1' },
      { kind: later, lane: 'two', namespace: 'n2', delay: 60_000 },
    ]);
    const [first, second] = answers.map(({ executionId }) => executionId);
    expect(await bench.snapshot(first!)).toMatchObject({
      lane: 'one',
      namespace: 'n1',
      state: 'waiting',
    });
    expect(await bench.snapshot(second!)).toMatchObject({
      lane: 'two',
      namespace: 'n2',
      state: 'delayed',
    });
  });
});

describe('a delay', () => {
  it('keeps the execution from workers until it has passed and its timer has fired', async () => {
    const kind = newKind();
    const id = await bench.submit({ kind, delay: 60_000 });
    const { state, stateVector, eligibleAtMs, createdAtMs } = await bench.snapshot(id);
    expect(state).toBe('delayed');
    expect(stateVector).toMatchObject({
      lifecyclePhase: 'runnable',
      eligibilityState: 'not_eligible_until_time',
      blockingReason: 'waiting_for_delay',
    });
    expect(eligibleAtMs! - createdAtMs).toBe(60_000);
    await bench.port.fireTimers();
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    await bench.database.moveClock(60_000);
    expect(await bench.snapshot(id)).toMatchObject({ state: 'waiting' });
    expect(await bench.port.fireTimers()).toBeGreaterThan(0);
    expect(await bench.claimOne(kind)).toMatchObject({ executionId: id, attemptIndex: 0, resumed: false });
  });

  it('of zero is no delay', async () => {
    const kind = newKind();
    const id = await bench.submit({ kind, delay: 0 });
    expect(await bench.claimOne(kind)).toMatchObject({ executionId: id });
  });
});

describe('an id given by the caller', () => {
  it('is used unchanged, whatever its partition', async () => {
    const executionId = givenId();
    expect(await bench.engine.executions.submit({ kind: newKind(), executionId })).toEqual({
      executionId,
      outcome: 'submitted',
    });
    expect(await bench.snapshot(executionId)).toMatchObject({ executionId });
  });

  it('makes the second submit a duplicate that changes nothing', async () => {
    const [kind, other] = [newKind(), newKind()];
    const executionId = givenId();
    await bench.engine.executions.submit({ kind, executionId, payload: 'first', priority: 1 });
    const again = { kind: other, executionId, payload: 'second', priority: 2, delay: 1_000 };
    expect(await bench.engine.executions.submit(again)).toEqual({ executionId, outcome: 'duplicate' });
    expect(await bench.claim({ kinds: [other] })).toEqual([]);
    const claims = await bench.claim({ kinds: [kind] });
    expect(claims).toMatchObject([{ executionId, payload: 'first', priority: 1 }]);
  });

  it('stays a duplicate after the execution has finished', async () => {
    const executionId = givenId();
    const kind = newKind();
    await bench.engine.executions.submit({ kind, executionId });
    await bench.port.complete(await bench.claimOne(kind), 'done');
    expect(await bench.engine.executions.submit({ kind, executionId })).toMatchObject({
      outcome: 'duplicate',
    });
    expect(await bench.engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 'done' });
  });

  it('may occur twice in one call: the first wins', async () => {
    const executionId = givenId();
    const kind = newKind();
    const answers = await bench.engine.executions.submit([
      { kind, executionId, payload: 'first' },
      { kind, payload: 'between' },
      { kind, executionId, payload: 'second' },
    ]);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted', 'duplicate']);
    expect(answers[2]!.executionId).toBe(executionId);
    const claims = await bench.claim({ kinds: [kind] });
    expect(claims.map(({ payload }) => payload)).toEqual(['first', 'between']);
  });

  it('among new ones is the only duplicate', async () => {
    const executionId = givenId();
    const kind = newKind();
    await bench.engine.executions.submit({ kind, executionId });
    const answers = await bench.engine.executions.submit([{ kind }, { kind, executionId }, { kind }]);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['submitted', 'duplicate', 'submitted']);
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(3);
  });

  it('used by concurrent rivals is submitted exactly once', async () => {
    const executionId = givenId();
    const kind = newKind();
    const rival = await bench.another();
    const answers = await Promise.all(
      [bench.engine, rival, bench.engine, rival].map((engine) =>
        engine.executions.submit({ kind, executionId }),
      ),
    );
    expect(answers.map(({ outcome }) => outcome).toSorted()).toEqual([
      'duplicate',
      'duplicate',
      'duplicate',
      'submitted',
    ]);
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(1);
  });

  it('that differs from another only in its partition blocks no work', async () => {
    const executionId = givenId();
    const kind = newKind();
    await bench.engine.executions.submit({ kind, executionId });
    await bench.engine.executions
      .submit({ kind, executionId: misplaced(executionId) })
      .catch(() => undefined);
    const last = await bench.submit({ kind });
    const ids = (await bench.claim({ kinds: [kind] })).map((claim) => claim.executionId);
    expect(ids).toContain(executionId);
    expect(ids).toContain(last);
  });
});

it('an execution is visible to claims as soon as submit returns, also on a new route', async () => {
  const [known, fresh] = [newKind(), newKind()];
  await bench.running({ kind: known });
  const id = await bench.submit({ kind: fresh });
  const { claims } = await bench.port.claim({ ...claimRequest(), kinds: [fresh] });
  expect(claims.map(({ executionId }) => executionId)).toEqual([id]);
});
