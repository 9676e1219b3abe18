/**
 * Malformed suspensions: refused, and nothing is written.
 */
import { describe, expect, it } from 'vitest';
import type { Claim, SuspendRequest } from '../../../src/protocol/index.ts';
import type { SignalCondition } from '../../../src/index.ts';
import { newKind, useBench } from '../../conformance/open.ts';

const bench = useBench();

const said = (waitpoint: string, n = 1): SignalCondition => ({
  kind: 'count',
  n,
  by: 'signals',
  waitpoints: [waitpoint],
});

function forApproval(more: Partial<SuspendRequest['waits'][number]> = {}): SuspendRequest {
  return { waits: [{ name: 'approval', condition: said('approval'), reason: 'approval', ...more }] };
}

async function suspended(request: SuspendRequest = forApproval(), kind = newKind()): Promise<Claim> {
  const claim = await bench.running({ kind });
  expect(await bench.port.suspend(claim, request)).toEqual({ outcome: 'suspended', repeated: false });
  return claim;
}

describe('a suspend', () => {
  const refused = async (request: unknown): Promise<string> => {
    const claim = await bench.running();
    const error = await bench.port.suspend(claim, request as SuspendRequest).then(
      () => {
        throw new Error('it was accepted');
      },
      (thrown: { code: string; field?: string; message: string }) => thrown,
    );
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'active' });
    return `${error.code} ${error.field}: ${error.message}`;
  };
  const wait = (condition: unknown) => ({ waits: [{ name: 'w', condition }] });
  const deep = (levels: number): unknown =>
    levels === 0 ? said('a') : { kind: 'all', of: [deep(levels - 1)] };

  it.each([
    ['no waits', { waits: [] }, /invalid_input request.waits/],
    ['an unknown key', { ...forApproval(), wits: 1 }, /request.wits/],
    ['an unknown reason', forApproval({ reason: 'lunch' as never }), /reason must be one of/],
    ['an onTimeout without a timeout', forApproval({ onTimeout: 'fail' }), /onTimeout needs a timeoutMs/],
    ['an unknown kind of condition', wait({ kind: 'maybe' }), /condition.kind/],
    ['a condition nested too deep', wait(deep(4)), /nested deeper than 4/],
    ['an empty all', wait({ kind: 'all', of: [] }), /without conditions/],
    ['a count of zero', wait({ ...said('a'), n: 0 }), /whole number of at least 1/],
    ['a count at no waitpoint', wait({ ...said('a'), waitpoints: [] }), /no waitpoint/],
    [
      'more waitpoints than it names',
      wait({ ...said('a', 2), by: 'waitpoints' }),
      /more waitpoints than it names/,
    ],
    [
      'a waitpoint shared by two waits',
      { waits: [forApproval().waits[0], { name: 'b', condition: said('approval') }] },
      /share/,
    ],
    [
      'seventeen waits',
      { waits: Array.from({ length: 17 }, (_, n) => ({ name: `w${n}`, condition: said(`w${n}`) })) },
      /too_many/,
    ],
    [
      'a waitpoint that no wait uses',
      { ...forApproval(), waitpoints: [{ name: 'other' }] },
      /which no wait uses/,
    ],
    [
      'a schema of the wrong type',
      { ...forApproval(), waitpoints: [{ name: 'approval', schema: 5 }] },
      /JSON Schema/,
    ],
  ])('is refused before anything is written: %s', async (_, request, sentence) => {
    expect(await refused(request)).toMatch(sentence);
  });

  it('may have a condition four levels deep', async () => {
    await suspended(wait(deep(3)) as SuspendRequest);
  });

  it('is refused with the name of a step, and with a waitpoint of another wait', async () => {
    const claim = await bench.running();
    await bench.port.recordStep(claim, { name: 'approval', value: 1 });
    await expect(bench.port.suspend(claim, forApproval())).rejects.toMatchObject({ code: 'invalid_step' });
    const first = { waits: [{ name: 'a', condition: said('shared') }], mode: 'poll' as const };
    expect(await bench.port.suspend(claim, first)).toEqual({ outcome: 'open' });
    const second = { waits: [{ name: 'b', condition: said('shared') }] };
    await expect(bench.port.suspend(claim, second)).rejects.toMatchObject({ code: 'invalid_input' });
  });
});
