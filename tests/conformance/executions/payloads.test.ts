/**
 * Payloads of any size reach the worker as they were submitted, wherever they are kept: small ones in the row of their
 * execution, larger ones beside it.
 */
import { describe, expect, it } from 'vitest';
import { LEASE_MS, newKind, useBench } from '../open.ts';

const bench = useBench();

const SMALL = [0, 1, 100, 220];
const LARGE = [260, 300, 1_000, 2_500, 100_000];
/** Between them are those whose size is that of the limit, more or less. */
const SIZES = [...SMALL, 235, 240, 245, 250, ...LARGE];
const PAYLOADS: unknown[] = [null, 0, 'x', [], {}, ...SIZES.map((size) => ({ text: 'y'.repeat(size) }))];

/** How many of them are beside the row of their execution. */
async function besides(): Promise<number> {
  const { rows } = await bench.database.query<{ found: number }>('SELECT count(*) AS found FROM ff_payload');
  return rows[0]!.found;
}

describe('payloads of all sizes', () => {
  it('are returned by a claim of many, and by describe', async () => {
    const kind = newKind();
    const before = await besides();
    const submitted = await bench.engine.executions.submit(PAYLOADS.map((payload) => ({ kind, payload })));
    expect(await besides()).toBeGreaterThanOrEqual(before + LARGE.length);
    expect(await besides()).toBeLessThanOrEqual(before + SIZES.length - SMALL.length);
    const claims = await bench.claim({ kinds: [kind], limit: 100 });
    const byId = new Map(claims.map(({ executionId, payload }) => [executionId, payload]));
    expect(submitted.map(({ executionId }) => byId.get(executionId))).toEqual(PAYLOADS);
    for (const [index, { executionId }] of submitted.entries())
      expect(await bench.engine.executions.describe(executionId, { include: ['input'] })).toMatchObject({
        input: PAYLOADS[index],
      });
  });

  it('are returned by a claim of one', async () => {
    const kind = newKind();
    for (const payload of PAYLOADS) {
      await bench.submit({ kind, payload });
      expect((await bench.claimOne(kind)).payload).toEqual(payload);
    }
  });

  it('have the inputs of a member added to them', async () => {
    const [first, second] = [newKind(), newKind()];
    for (const size of SIZES) {
      await bench.engine.flows.submit({
        name: 'sized',
        members: [
          { name: 'first', kind: first },
          {
            name: 'second',
            kind: second,
            payload: { text: 'z'.repeat(size) },
            after: [{ from: 'first', as: 'found' }],
          },
        ],
      });
      await bench.port.complete(await bench.claimOne(first), size);
      expect((await bench.claimOne(second)).payload).toEqual({ text: 'z'.repeat(size), found: size });
    }
  });

  it('are forgotten with their executions', async () => {
    const kind = newKind();
    const before = await besides();
    await bench.submit({ kind, payload: 'x'.repeat(1_000), policy: { retention: 1 } });
    await bench.port.complete(await bench.claimOne(kind, { leaseMs: LEASE_MS }));
    expect((await besides()) - before).toBe(1);
    await bench.database.moveClock('1h');
    await bench.reconcile();
    expect((await besides()) - before).toBe(0);
  });
});
