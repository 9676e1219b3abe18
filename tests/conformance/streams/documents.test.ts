/**
 * The document of an execution over its attempts: what finished steps patched stays, everything else of an attempt that
 * has ended is taken back, whatever ended it.
 */
import { describe, expect, it } from 'vitest';
import type { Claim, FrameRequest } from '../../../src/protocol/index.ts';
import type { SummaryItem } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const AGAIN = { retry: { maxRetries: 9, backoff: { type: 'fixed', delay: 0 } } } as const;

const patch = (payload: object, step?: string): FrameRequest => ({
  payload,
  mode: 'summary',
  ...(step === undefined ? {} : { step: { name: step } }),
});

async function write(claim: Claim, ...frames: FrameRequest[]): Promise<void> {
  for (let from = 0; from < frames.length; from += 50) {
    const some = frames.slice(from, from + 50);
    expect(await bench.port.appendFrames(claim, some)).toMatchObject({ outcome: 'appended' });
  }
}

async function finish(claim: Claim, name: string): Promise<void> {
  expect(await bench.port.recordStep(claim, { name, value: null })).toMatchObject({ outcome: 'recorded' });
}

async function running(kind = newKind()): Promise<{ kind: string; claim: Claim; id: string }> {
  const claim = await bench.running({ kind, policy: AGAIN });
  return { kind, claim, id: claim.executionId };
}

async function documentOf(id: string): Promise<unknown> {
  return (await bench.engine.streams.readSummary(id))?.document;
}

/** Ways in which an attempt ends and another one follows. */
const ENDS: Record<string, (claim: Claim) => Promise<unknown>> = {
  'a failure': (claim) => bench.port.fail(claim, { message: 'not yet' }),
  'a lost lease': (claim) => bench.engine.executions.revokeLease(claim.executionId, { reason: 'gone' }),
};

async function nextAttempt(claim: Claim, kind: string, how = 'a failure'): Promise<Claim> {
  await ENDS[how]!(claim);
  await bench.port.fireTimers();
  return bench.claimOne(kind);
}

describe('another attempt', () => {
  it.each(Object.keys(ENDS))('after %s begins with what finished steps patched', async (how) => {
    const { kind, claim, id } = await running();
    await write(claim, patch({ a: 0, b: 0, c: 0 }), patch({ a: 1, gone: 1 }, 'one'), patch({ b: 1 }, 'two'));
    await finish(claim, 'one');
    await write(claim, patch({ gone: null, a: 2 }));
    await ENDS[how]!(claim);
    // At once: nobody has to begin the attempt for it.
    expect(await bench.engine.streams.readSummary(id)).toMatchObject({
      attemptIndex: 1,
      document: { a: 1, gone: 1 },
      version: 4,
    });
    await bench.port.fireTimers();
    const second = await bench.claimOne(kind);
    await write(second, patch({ d: 1 }));
    expect(await bench.engine.streams.readSummary(id)).toMatchObject({
      document: { a: 1, gone: 1, d: 1 },
      version: 5,
    });
  });

  it('takes back what a step wrote under a lease that did not finish it', async () => {
    const { kind, claim, id } = await running();
    await write(claim, patch({ half: 1 }, 'one'));
    await bench.port.release(claim);
    const again = await bench.claimOne(kind);
    await write(again, patch({ whole: 1 }, 'one'));
    await finish(again, 'one');
    await nextAttempt(again, kind);
    expect(await documentOf(id)).toEqual({ whole: 1 });
  });

  it('carries the document over attempts that patch nothing, and adds what they finish', async () => {
    const { kind, claim, id } = await running();
    await write(claim, patch({ a: 1 }, 'one'));
    await finish(claim, 'one');
    const second = await nextAttempt(claim, kind);
    const third = await nextAttempt(second, kind, 'a lost lease');
    await write(third, patch({ a: null, b: 2 }, 'two'), patch({ c: 3 }));
    await finish(third, 'two');
    await nextAttempt(third, kind);
    expect(await documentOf(id)).toEqual({ b: 2 });
  });

  it('has the same document when there were so many patches that a snapshot was kept', async () => {
    const { kind, claim, id } = await running();
    const numbers = Array.from({ length: 700 }, (_, n) => n);
    // Every third inside a step that finishes soon, every third in one that finishes late, every third outside.
    const frames = numbers.map((n) =>
      patch({ [`k${n % 50}`]: n, last: n }, ['soon', 'late', undefined][n % 3]),
    );
    await write(claim, ...frames.slice(0, 150));
    await finish(claim, 'soon');
    await write(
      claim,
      ...frames
        .slice(150)
        .map((frame, n) => patch(frame.payload as object, n % 2 === 0 ? 'late' : undefined)),
    );
    await finish(claim, 'late');
    await write(claim, ...numbers.slice(0, 300).map((n) => patch({ outside: n })));
    const { rows } = await bench.database.query<{ moved: boolean }>(
      `SELECT kept_version > 500 AS moved FROM ff_stream_summary WHERE execution_id = $1`,
      [id.slice(id.lastIndexOf(':') + 1)],
    );
    expect(rows).toEqual([{ moved: true }]);
    const expected: Record<string, number> = {};
    frames.forEach((frame, n) => {
      const isKept = n < 150 ? n % 3 !== 2 : n % 2 === 0;
      if (isKept) Object.assign(expected, frame.payload);
    });
    await nextAttempt(claim, kind);
    expect(await documentOf(id)).toEqual(expected);
  });
});

describe('a document with more patches than are folded at once', () => {
  const patches = Array.from({ length: 450 }, (_, n) => patch({ [`k${n % 90}`]: n, last: n }, 'long'));
  const whole: Record<string, unknown> = Object.assign(
    {},
    ...patches.map(({ payload }) => payload as object),
  );

  /** A step that has just finished, so that no snapshot has what it wrote. */
  async function ended() {
    const { kind, claim, id } = await running();
    await write(claim, ...patches);
    await finish(claim, 'long');
    await ENDS['a failure']!(claim);
    await bench.port.fireTimers();
    const { rows } = await bench.database.query<{ behind: boolean }>(
      `SELECT refold_from IS NOT NULL AS behind FROM ff_stream_summary WHERE execution_id = $1 AND attempt_index = 1`,
      [id.slice(id.lastIndexOf(':') + 1)],
    );
    expect(rows).toEqual([{ behind: true }]);
    return { kind, id };
  }

  it('is whole for whoever reads it', async () => {
    const { id } = await ended();
    const readers = Array.from({ length: 3 }, () => documentOf(id));
    expect(await Promise.all(readers)).toEqual([whole, whole, whole]);
  });

  it('is whole before it is patched, and in later attempts', async () => {
    const { kind, id } = await ended();
    const second = await bench.claimOne(kind);
    await write(second, patch({ last: null, own: 1 }));
    expect(await documentOf(id)).toEqual({ ...whole, last: undefined, own: 1 });
    await nextAttempt(second, kind);
    expect(await documentOf(id)).toEqual(whole);
  });

  it('is carried on by attempts that neither read nor patch it', async () => {
    const { kind, id } = await ended();
    await nextAttempt(await nextAttempt(await bench.claimOne(kind), kind), kind, 'a lost lease');
    expect(await documentOf(id)).toEqual(whole);
  });
});

describe('a replay', () => {
  it.each([
    ['failed_step', { a: 1 }],
    ['start', {}],
  ] as const)('from %s begins with what still counts', async (from, expected) => {
    const { claim, id } = await running();
    await write(claim, patch({ a: 1 }, 'one'), patch({ b: 1 }));
    await finish(claim, 'one');
    await bench.port.fail(claim, { message: 'never', retry: 'never' });
    // What an execution ended with is shown as it was.
    expect(await documentOf(id)).toEqual({ a: 1, b: 1 });
    await bench.engine.executions.replay(id, { from, reason: 'again' });
    expect(await documentOf(id)).toEqual(expected);
  });
});

it('whoever watches is given the document of the next attempt, and its patches', async () => {
  const { kind, claim, id } = await running();
  const items: SummaryItem[] = [];
  const watching = (async () => {
    for await (const item of bench.engine.streams.watchSummary(id)) items.push(item);
  })();
  await write(claim, patch({ a: 1 }, 'one'), patch({ b: 1 }));
  await finish(claim, 'one');
  const second = await nextAttempt(claim, kind);
  await write(second, patch({ c: 1 }));
  await bench.port.complete(second);
  await watching;
  const late: SummaryItem[] = [];
  for await (const item of bench.engine.streams.watchSummary(id, { attemptIndex: 1 })) late.push(item);
  expect(late).toMatchObject([
    { type: 'document', document: { a: 1, c: 1 }, version: 3 },
    { type: 'closed' },
  ]);
  const documents = items.filter((item) => item.type === 'document');
  expect(documents.at(-1)).toMatchObject({ attemptIndex: 1, document: { a: 1 } });
  expect(items.at(-1)).toEqual({ type: 'closed', attemptIndex: 1, reason: 'attempt_success' });
});
