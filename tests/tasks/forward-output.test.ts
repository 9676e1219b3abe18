/**
 * Output only moves forward: whatever happens to a handler, its document and what a reader shows of its stream are those
 * of a run that nothing disturbed. Random handlers are paused, fail, lose their lease and are released between two
 * writes; the way without comparing what was written fails the same test.
 */
import { writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import type { StreamFrame, StreamItem } from '../../src/contract/streams.ts';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { foldStream } from '../../src/model/fold-stream.ts';
import { chance } from '../setup/chance.ts';
import { patiently } from '../setup/patience.ts';
import { newKind, useCrew } from '../worker/crew.ts';
import { randomOutput, writeOutput, type Disturbance } from './random-output.ts';

const crew = useCrew();
const HANDLERS = Number(process.env['FLOWFABRIC_TEST_HANDLERS'] ?? 24);
const SEED = Number(process.env['FLOWFABRIC_TEST_SEED'] ?? 1);
/** Where the figures of a soak are written. */
const FIGURES = process.env['FLOWFABRIC_TEST_FIGURES'];
const AT_ONCE = 20;
/** Of one handler: it must end some time. */
const MOST_KILLS = 4;
const KILL_CHANCE = 0.06;
const POLICY = { retry: { maxRetries: 1_000, backoff: { type: 'fixed', delay: 5 } } } as const;

type Fold = (items: StreamItem[]) => StreamFrame[];

/** What is left in the end. */
interface Shown {
  document: unknown;
  /** Payloads of each stream in order, and sorted where several branches write to it. */
  streams: Record<string, string[]>;
}

interface Verdict {
  handlers: number;
  broad: number;
  runs: number;
  attempts: number;
  revokedBetweenWrites: number;
  releasedBetweenWrites: number;
  restarts: number;
  different: string[];
}

function shownOf(frames: readonly StreamFrame[], document: unknown): Shown {
  const streams: Record<string, string[]> = {};
  for (const { mode, frameType, payload } of frames)
    if (mode === 'durable') (streams[frameType] ??= []).push(String(payload));
  streams['shared']?.sort();
  return { document, streams };
}

const CALM: Disturbance = { between: async () => undefined, pauses: false, fails: () => false };

/** Takes the lease away between two writes, when both the one before is stored and the next one is not written. */
function disturbing(engine: Connection, verdict: Verdict): Disturbance {
  const next = chance(SEED);
  const failed = new Set<string>();
  const kills = new Map<string, number>();
  return {
    pauses: true,
    fails(ctx, name) {
      const known = failed.has(`${ctx.executionId} ${name}`);
      failed.add(`${ctx.executionId} ${name}`);
      return !known;
    },
    async between(ctx) {
      const { executionId, signal, fence } = ctx;
      const before = kills.get(executionId) ?? 0;
      if (next() >= KILL_CHANCE || before >= MOST_KILLS || signal.aborted) return;
      kills.set(executionId, before + 1);
      await ctx.stream.flush();
      const [, attemptIndex, leaseEpoch] = fence.split('/').map(Number) as [number, number, number];
      if (next() < 0.5) {
        await engine.executions.revokeLease(executionId, { reason: 'chance' });
        verdict.revokedBetweenWrites += 1;
      } else {
        await workerPort(engine).release({ executionId, attemptIndex, leaseEpoch });
        verdict.releasedBetweenWrites += 1;
      }
    },
  };
}

async function readAll(items: AsyncIterable<StreamItem>): Promise<StreamItem[]> {
  const all: StreamItem[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** Runs the handlers of some seeds, each once undisturbed, and compares. */
async function runAll(count: number, seen: (port: WorkerPort) => WorkerPort, fold: Fold): Promise<Verdict> {
  const engine = await crew.connect({ poolSize: 8 });
  const [calm, wild] = [task<number>(newKind(), POLICY), task<number>(newKind(), POLICY)];
  const verdict: Verdict = {
    handlers: 0,
    broad: 0,
    runs: 0,
    attempts: 0,
    revokedBetweenWrites: 0,
    releasedBetweenWrites: 0,
    restarts: 0,
    different: [],
  };
  const around = disturbing(engine, verdict);
  const run = (seed: number, ctx: TaskContext, how: Disturbance) =>
    writeOutput(randomOutput(seed).whole, ctx, how);
  crew.work(seen(workerPort(engine)), {
    concurrency: AT_ONCE * 2,
    poll: 100,
    handlers: [
      handle(calm, (seed, ctx) => run(seed, ctx, CALM)),
      handle(wild, (seed, ctx) => {
        verdict.runs += 1;
        return run(seed, ctx, around);
      }),
    ],
  });
  const documentOf = async (id: string): Promise<unknown> =>
    (await engine.streams.readSummary(id))?.document ?? null;
  const one = async (seed: number): Promise<void> => {
    const undisturbed = await engine.submit(calm, seed);
    await undisturbed.result();
    const items = await readAll(engine.streams.tail(undisturbed.executionId));
    const expected = shownOf(foldStream(items), await documentOf(undisturbed.executionId));
    const { executionId, ...execution } = await engine.submit(wild, seed);
    const live = readAll(engine.streams.tail(executionId));
    expect({ ...(await execution.wait()) }).toMatchObject({ outcome: 'success' });
    const late = await readAll(engine.streams.tail(executionId));
    const document = await documentOf(executionId);
    for (const name of Object.keys(expected.streams)) {
      const alone = late.filter((item) => item.type !== 'frame' || item.frame.frameType === name);
      const found = shownOf(fold(alone), null).streams[name];
      if (JSON.stringify(found) !== JSON.stringify(expected.streams[name]))
        verdict.different.push(`seed ${seed}, ${name} alone: ${JSON.stringify(found)}`);
    }
    for (const [reader, read] of Object.entries({ live: await live, late })) {
      const found = shownOf(fold(read), document);
      if (JSON.stringify(sorted(found)) !== JSON.stringify(sorted(expected)))
        verdict.different.push(
          `seed ${seed}, ${reader} reader:\n${JSON.stringify(sorted(found))}\ninstead of\n${JSON.stringify(sorted(expected))}`,
        );
    }
    verdict.handlers += 1;
    verdict.attempts += 1 + late.filter(({ type }) => type === 'superseded').length;
    verdict.restarts += late.filter(({ type }) => type === 'restarted').length;
    if (randomOutput(seed).isBroad) verdict.broad += 1;
  };
  for (let from = 0; from < count; from += AT_ONCE) {
    const seeds = Array.from(
      { length: Math.min(AT_ONCE, count - from) },
      (_, n) => SEED * 100_000 + from + n,
    );
    await Promise.all(seeds.map(one));
  }
  return verdict;
}

/** With the keys of all objects in order. */
function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value).map(([key, inner]): [string, unknown] => [key, sorted(inner)]);
  return Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

test(
  'what random handlers have written in the end is what they write undisturbed',
  { timeout: patiently(60_000 + HANDLERS * 4_000) },
  async () => {
    const verdict = await runAll(HANDLERS, (port) => port, foldStream);
    const { different, ...figures } = verdict;
    const summary = { ...figures, different: different.length, seed: SEED };
    console.log(`output: ${JSON.stringify(summary)}`);
    if (FIGURES !== undefined) await writeFile(FIGURES, `${JSON.stringify(summary, undefined, 2)}\n`);
    expect(different).toEqual([]);
    expect(verdict.broad).toBeGreaterThanOrEqual(HANDLERS / 2);
    expect(verdict.runs).toBeGreaterThan(HANDLERS * 2);
    expect(verdict.revokedBetweenWrites).toBeGreaterThan(0);
    expect(verdict.releasedBetweenWrites).toBeGreaterThan(0);
  },
);

/** Drops whatever is not in a finished step when a handler runs again. */
const foldAfresh: Fold = (items) => {
  let shown: { frame: StreamFrame; isFinal: boolean }[] = [];
  for (const item of items) {
    if (item.type === 'frame') shown.push({ frame: item.frame, isFinal: false });
    if (item.type !== 'resumed' && item.type !== 'superseded') continue;
    const finished = new Set(item.finishedSteps.map(({ name }) => name));
    shown = shown
      .filter(({ frame, isFinal }) => isFinal || finished.has(frame.step?.name ?? ''))
      .map(({ frame }) => ({ frame, isFinal: true }));
  }
  return shown.map(({ frame }) => frame);
};

test('without a comparison it is not', { timeout: patiently(180_000) }, async () => {
  const forgetful = (port: WorkerPort): WorkerPort => ({
    ...port,
    readWritten: async () => ({ frames: [], steps: [], patchedBy: [], hasLeftovers: false }),
  });
  const verdict = await runAll(10, forgetful, foldAfresh);
  console.log(
    `output without a comparison: ${verdict.different.length} differences of ${verdict.handlers} handlers`,
  );
  expect(verdict.different.length).toBeGreaterThan(5);
});
