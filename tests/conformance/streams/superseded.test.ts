/**
 * What a reader keeps when another attempt follows: frames of steps that had finished, because no later attempt writes
 * them again; whenever it reads.
 */
import { expect, it } from 'vitest';
import type { Claim, FrameRequest } from '../../../src/protocol/index.ts';
import type { StreamItem } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

const inStep = (payload: string, name: string): FrameRequest => ({ payload, step: { name } });

async function write(claim: Claim, ...frames: FrameRequest[]): Promise<void> {
  expect(await bench.port.appendFrames(claim, frames)).toMatchObject({ outcome: 'appended' });
}

/** What a web page would keep. */
async function keptBy(items: AsyncIterable<StreamItem>): Promise<string[]> {
  let kept: { item: StreamItem & { type: 'frame' }; isFinal: boolean }[] = [];
  for await (const item of items) {
    if (item.type === 'frame') kept.push({ item, isFinal: false });
    if (item.type !== 'superseded' && item.type !== 'resumed') continue;
    const finished = new Set(item.finishedSteps.map(({ name, key }) => `${name}/${key}`));
    const isFinished = ({ frame }: { frame: { step: { name: string; key: string } | null } }): boolean =>
      frame.step !== null && finished.has(`${frame.step.name}/${frame.step.key}`);
    kept = kept
      .filter((one) => one.isFinal || isFinished(one.item))
      .map((one) => ({ ...one, isFinal: true }));
  }
  return kept.map(({ item }) => String(item.frame.payload));
}

it('a reader keeps frames of finished steps over attempts, and each piece of output once', async () => {
  const kind = newKind();
  const policy = { retry: { maxRetries: 2, backoff: { type: 'fixed' as const, delay: 0 } } };
  const first = await bench.running({ kind, policy });
  const live = keptBy(bench.engine.streams.tail(first.executionId));
  await write(first, inStep('one', 'first'), inStep('half of two', 'second'), { payload: 'aside' });
  await bench.port.recordStep(first, { name: 'first', value: null });
  await bench.port.fail(first, { message: 'not yet' });
  await bench.port.fireTimers();
  const second = await bench.claimOne(kind);
  await write(second, inStep('two', 'second'), inStep('half of three', 'third'));
  await bench.port.recordStep(second, { name: 'second', value: null });
  await bench.port.fail(second, { message: 'not yet' });
  await bench.port.fireTimers();
  const third = await bench.claimOne(kind);
  await write(third, inStep('three', 'third'), { payload: 'the end' });
  await bench.port.recordStep(third, { name: 'third', value: null });
  await bench.port.complete(third);
  const all = ['one', 'two', 'three', 'the end'];
  expect(await live).toEqual(all);
  expect(await keptBy(bench.engine.streams.tail(first.executionId))).toEqual(all);
});
