/**
 * Concurrent calls share statements. No caller may notice, except by the time it takes.
 */
import { describe, expect, it } from 'vitest';
import { misplaced, newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();

async function runningMany(count: number) {
  const kind = newKind();
  await bench.engine.executions.submit(Array.from({ length: count }, (_, payload) => ({ kind, payload })));
  return bench.claim({ kinds: [kind], limit: count });
}

describe('calls made at the same time', () => {
  it('return to each of two hundred completions its own outcome and result', async () => {
    const claims = await runningMany(200);
    const answers = await Promise.all(
      claims.map((claim) => bench.port.complete(claim, { is: claim.payload })),
    );
    expect(answers).toEqual(claims.map(() => ({ outcome: 'completed', repeated: false })));
    const results = await Promise.all(
      claims.map(({ executionId }) => bench.engine.executions.result(executionId)),
    );
    expect(results).toEqual(claims.map(({ payload }) => ({ outcome: 'success', result: { is: payload } })));
  });

  it('return to each caller the outcome for its own lease, valid and invalid ones mixed', async () => {
    const claims = await runningMany(40);
    const leases = claims.map((claim, index) => {
      if (index % 4 === 1) return { ...claim, leaseEpoch: 7 };
      return index % 4 === 2 ? { ...claim, executionId: misplaced(claim.executionId) } : claim;
    });
    const answers = await Promise.all(leases.map((lease) => bench.port.complete(lease)));
    expect(answers.map(({ outcome }) => outcome)).toEqual(
      claims.map((_, index) => ['completed', 'stale_lease', 'not_found', 'completed'][index % 4]),
    );
  });

  it('store every failure with its own message and decision', async () => {
    const kind = newKind();
    const policy = { retry: { maxRetries: 1 } };
    await bench.engine.executions.submit(
      Array.from({ length: 60 }, (_, index) => (index % 2 === 0 ? { kind, policy } : { kind })),
    );
    const claims = await bench.claim({ kinds: [kind] });
    const retried = new Set<string>();
    await Promise.all(
      claims.map(async (claim) => {
        const answer = await bench.port.fail(claim, { message: claim.executionId });
        if (answer.outcome === 'retry_scheduled') retried.add(claim.executionId);
      }),
    );
    expect(retried.size).toBe(30);
    const snapshots = await Promise.all(claims.map(({ executionId }) => bench.snapshot(executionId)));
    for (const { executionId, state, attempts } of snapshots) {
      expect(state).toBe(retried.has(executionId) ? 'delayed' : 'failed');
      expect(attempts).toMatchObject([{ failureMessage: executionId }]);
    }
  });

  it('on the same execution let one act and return it to the others as a repeat', async () => {
    const [claim] = await runningMany(1);
    const results = ['one', 'two', 'three'];
    const answers = await Promise.all(results.map((result) => bench.port.complete(claim!, result)));
    const acted = results.filter((_, index) => 'repeated' in answers[index]! && !answers[index].repeated);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['completed', 'completed', 'completed']);
    expect(acted).toHaveLength(1);
    expect(await bench.engine.executions.result(claim!.executionId)).toEqual({
      outcome: 'success',
      result: acted[0],
    });
  });

  it('of different kinds on the same execution let exactly one win', async () => {
    const claims = await runningMany(20);
    for (const claim of claims) {
      const [completed, failed, released] = await Promise.all([
        bench.port.complete(claim),
        bench.port.fail(claim, { message: 'ouch' }),
        bench.port.release(claim),
      ]);
      const won = [completed, failed, released].filter((answer) => 'repeated' in answer);
      expect(won).toHaveLength(1);
    }
  });

  it('on one execution under two leases return the outcome of each lease', async () => {
    const kind = newKind();
    const old = await bench.running({ kind });
    await bench.port.release(old);
    const current = await bench.claimOne(kind);
    const [stale, completed] = await Promise.all([bench.port.complete(old), bench.port.complete(current)]);
    expect(['stale_lease', 'not_active']).toContain(stale.outcome);
    expect(completed).toEqual({ outcome: 'completed', repeated: false });
  });

  it('refuse a malformed one without affecting the others', async () => {
    const claims = await runningMany(3);
    const settled = await Promise.allSettled([
      bench.port.complete(claims[0]!),
      bench.port.complete({ ...claims[1]!, leaseEpoch: 1.5 }),
      bench.port.complete(claims[2]!, { bad: Number.NaN }),
    ]);
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
    expect(await bench.snapshot(claims[1]!.executionId)).toMatchObject({ state: 'active' });
  });

  it('of every kind finish together', async () => {
    const claims = await runningMany(90);
    const [first, second, third] = [claims.slice(0, 30), claims.slice(30, 60), claims.slice(60)];
    const answers = await Promise.all([
      ...first.map((claim) => bench.port.complete(claim)),
      ...second.map((claim) => bench.port.fail(claim, { message: 'ouch' })),
      ...third.map((claim) => bench.port.release(claim)),
      bench.port.renew(third.slice(0, 1), 1_000).then(() => ({ outcome: 'asked' })),
    ]);
    const counts = Object.fromEntries(
      ['completed', 'failed', 'released', 'asked'].map((word) => [
        word,
        answers.filter(({ outcome }) => outcome === word).length,
      ]),
    );
    expect(counts).toEqual({ completed: 30, failed: 30, released: 30, asked: 1 });
  });
});

it('an engine that closes finishes the calls it already accepted, or reports that it was closed', async () => {
  const claims = await runningMany(5);
  const engine = await bench.another({ listen: 'off' });
  const settling = Promise.allSettled(claims.map((claim) => workerPort(engine).complete(claim)));
  await engine.close();
  for (const settled of await settling) {
    const word = settled.status === 'fulfilled' ? settled.value.outcome : settled.reason.code;
    expect(['completed', 'closed']).toContain(word);
  }
});
