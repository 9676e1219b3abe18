/**
 * Waiting until every execution with some tags has finished, also those that members submit while they run.
 */
import { describe, expect, it } from 'vitest';
import type { ExecutionId } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

let batches = 0;
/** A tag that no other test uses. */
function newBatch(): { batch: string } {
  batches += 1;
  return { batch: `b-${batches}` };
}

/** Resolves with the executions that had finished when the tags were settled. */
function settledAfter(tags: Record<string, string>, finished: readonly string[]): Promise<readonly string[]> {
  return bench.engine.executions.settled({ tags }).then(() => [...finished]);
}

async function finish(kind: string): Promise<ExecutionId> {
  const claim = await bench.claimOne(kind);
  await bench.port.complete(claim, null);
  return claim.executionId;
}

describe('executions with a tag are settled', () => {
  it('at once when there are none, and when all have finished', async () => {
    const tags = newBatch();
    await bench.engine.executions.settled({ tags });
    const { executionId } = await bench.running({ tags });
    await bench.engine.cancel(executionId, { reason: 'enough' });
    await bench.engine.executions.settled({ tags });
  });

  it('when the last of them has finished, however they finish', async () => {
    const tags = newBatch();
    const kind = newKind();
    const finished: string[] = [];
    const delayed = await bench.submit({ kind: newKind(), tags, delay: 3_600_000 });
    await bench.submit({ kind, tags });
    const settled = settledAfter(tags, finished);
    finished.push('completed');
    await finish(kind);
    await bench.engine.executions.settled({ tags: { ...tags, other: 'nobody' } });
    finished.push('cancelled');
    await bench.engine.cancel(delayed, { reason: 'enough' });
    expect(await settled).toEqual(['completed', 'cancelled']);
  });

  it('only when what they submitted themselves has finished too', async () => {
    const tags = newBatch();
    const kinds = [newKind(), newKind(), newKind(), newKind()];
    await bench.submit({ kind: kinds[0]!, tags: { ...tags, first: 'yes' } });
    const finished: string[] = [];
    const settled = settledAfter(tags, finished);
    for (const [index, kind] of kinds.entries()) {
      const claim = await bench.claimOne(kind);
      const next = kinds[index + 1];
      if (next !== undefined) await bench.submit({ kind: next, tags });
      finished.push(kind);
      await bench.port.complete(claim, null);
      // Notified by the same end as the other.
      if (index === 0) await bench.engine.executions.settled({ tags: { ...tags, first: 'yes' } });
    }
    expect(await settled).toEqual(kinds);
  });

  it('by all tags, and in one namespace if it is named', async () => {
    const tags = newBatch();
    await bench.submit({ tags: { ...tags, part: 'a' }, namespace: 'here' });
    await bench.engine.executions.settled({ tags: { ...tags, part: 'b' } });
    await bench.engine.executions.settled({ tags, namespace: 'there' });
    const stop = new AbortController();
    const open = bench.engine.executions.settled({ tags, namespace: 'here', signal: stop.signal });
    stop.abort(new Error('no longer needed'));
    await expect(open).rejects.toThrow('no longer needed');
  });
});

it('a request without tags, or with those of traces, is refused', async () => {
  for (const tags of [{}, { traceparent: 'x' }, 'x'])
    await expect(bench.engine.executions.settled({ tags: tags as never })).rejects.toMatchObject({
      code: 'invalid_input',
    });
});
