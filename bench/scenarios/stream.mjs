/**
 * Streams: how fast one writer appends, whether that depends on the existing frames, and how soon a reader in another
 * process gets what was written, and what that costs the writers. Three scenarios, because each compares a different
 * figure.
 */
import { withStore } from '../harness/draining.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore } from '../harness/stores.mjs';
import { jobs, keyOf, pairs, thousands } from './cases.mjs';

const OURS = new URL('stream/ours.mjs', import.meta.url);
const LOCK_AND_COUNT = new URL('stream/lock-and-count.mjs', import.meta.url);
const REDIS = new URL('stream/redis.mjs', import.meta.url);

const CALLS = { quick: 300, full: 4_000 };
const BATCH_CALLS = { quick: 30, full: 500 };
const CHUNKS = { quick: 5_000, full: 100_000 };
const TOGETHER_CALLS = { quick: 5_000, full: 100_000 };
const PER_CALL = 100;
const TOGETHER = 50;
const WRITE = 'await ctx.stream.write(chunk), 200 bytes';
/** Short streams are used in turn, so that they stay short. */
const PRESENT = [
  { present: 10, streams: 100 },
  { present: 1_000, streams: 5 },
  { present: 100_000, streams: 1 },
];
const PRESENT_CALLS = { quick: 100, full: 500 };
const TAIL_MS = { quick: 3_000, full: 10_000 };
const WARM_UP_MS = 2_000;
const WRITERS = [8, 32];
const FOLLOWED_CALLS = { quick: 8_000, full: 40_000 };
const TAILS = [
  { streams: 1, tailsEach: 1, perSecond: 100, label: '1 tail' },
  { streams: 1, tailsEach: 1, perSecond: 1_000, label: '1 tail' },
  { streams: 1_000, tailsEach: 1, perSecond: 100, label: '1,000 tails, each of a stream of its own' },
  { streams: 1, tailsEach: 1_000, perSecond: 10, label: '1,000 tails of one stream' },
];

const lockAndCount = { name: 'lock-and-count', side: 'peer', store: 'postgres' };
const redis = { name: 'redis', side: 'peer', store: 'redis' };

function ours(bench) {
  return pairs(bench, 'batched').find(({ contender }) => contender.side === 'ours').contender;
}

function hasRedis(bench) {
  return bench.contenders.some(({ store }) => store === 'redis');
}

function appendCases(bench) {
  const { size } = bench.options;
  const contender = ours(bench);
  const one = { calls: jobs(bench, CALLS[size]), perCall: 1, streams: 1, mode: 'durable' };
  const many = { ...one, calls: jobs(bench, BATCH_CALLS[size]), perCall: PER_CALL };
  const single = 'one writer, one frame of 200 bytes a call';
  const batched = `one writer, ${PER_CALL} frames of 200 bytes a call`;
  const live = { ...one, mode: 'best_effort', relativeTo: { key: 'single', label: 'best-effort ÷ durable' } };
  const chunks = jobs(bench, CHUNKS[size]);
  return [
    { contender, key: 'single', group: single, label: 'durable', way: 'ours', ...one },
    { contender: redis, key: 'XADD', group: single, label: 'XADD', way: 'redis', ...one },
    { contender, key: 'batched', group: batched, label: 'durable', way: 'ours', ...many },
    { contender: redis, key: 'pipelined', group: batched, label: 'XADD, pipelined', way: 'redis', ...many },
    { contender, key: 'live', group: `${single}, best-effort`, label: 'best-effort', way: 'ours', ...live },
    {
      contender,
      key: 'handler',
      group: 'one handler',
      label: WRITE,
      way: 'handler',
      count: chunks,
      handlers: 1,
    },
    {
      contender,
      key: 'together',
      group: `${TOGETHER} streams, one frame of 200 bytes a call`,
      label: `${TOGETHER} callers that await each frame`,
      way: 'together',
      calls: jobs(bench, TOGETHER_CALLS[size]),
      streams: TOGETHER,
    },
    {
      contender,
      key: 'handlers',
      group: `${TOGETHER} handlers`,
      label: WRITE,
      way: 'handler',
      count: Math.ceil(chunks / TOGETHER),
      handlers: TOGETHER,
    },
    ...['durable', 'best_effort'].flatMap((mode) => presentCases(bench, mode)),
  ].filter(({ way }) => way !== 'redis' || hasRedis(bench));
}

function presentCases(bench, mode) {
  const calls = jobs(bench, PRESENT_CALLS[bench.options.size]);
  const isLive = mode === 'best_effort';
  return PRESENT.flatMap(({ present: most, streams }) => {
    const present = jobs(bench, most);
    const shared = { present, streams, mode, calls, perCall: 1 };
    const group = `one ${isLive ? 'best-effort' : 'durable'} frame a call, ${thousands(present)} ${isLive ? 'kept' : 'present'}`;
    const counted = `advisory lock, max(), ${isLive ? 'NOT IN, ' : ''}count(*)`;
    return [
      { contender: ours(bench), label: 'counters', way: 'ours' },
      { contender: lockAndCount, label: counted, way: 'counted' },
    ].map((one) => ({ ...one, ...shared, group, key: keyOf(mode, most, one.way) }));
  });
}

const APPENDS = {
  ours: (one, bench) =>
    withStore(bench, one, (target) =>
      withSeats(1, async ([seat]) => {
        const order = { ...orderOf(one), target };
        await seat.call(OURS, 'hold', order);
        await settleStore(target, 'analysed');
        return bench.watched(() => seat.call(OURS, 'append', order));
      }),
    ),
  handler: (one, bench) =>
    withStore(bench, one, (target) =>
      withSeats(1, ([seat]) =>
        bench.watched(() =>
          seat.call(OURS, 'writeInHandlers', { target, count: one.count, handlers: one.handlers }),
        ),
      ),
    ),
  together: (one, bench) =>
    withStore(bench, one, (target) =>
      withSeats(1, async ([seat]) => {
        await seat.call(OURS, 'hold', { target, streams: one.streams, present: 1 });
        await settleStore(target, 'analysed');
        return bench.watched(() => seat.call(OURS, 'appendTogether', { calls: one.calls }));
      }),
    ),
  counted: (one, bench) =>
    withBareStore(bench, one, (target) =>
      withSeats(1, async ([seat]) => {
        const order = { ...orderOf(one), target };
        await seat.call(LOCK_AND_COUNT, 'prepare', order);
        await settleStore(target, 'analysed');
        return bench.watched(() => seat.call(LOCK_AND_COUNT, 'append', order));
      }),
    ),
  redis: (one, bench) =>
    withBareStore(bench, one, (target) =>
      withSeats(1, ([seat]) => bench.watched(() => seat.call(REDIS, 'append', { ...orderOf(one), target }))),
    ),
};

function orderOf({ calls, perCall, streams, mode, present }) {
  return { calls, perCall, streams, mode, ...(present === undefined ? {} : { present }) };
}

/** Without our schema. */
async function withBareStore(bench, { contender }, run) {
  const store = await bench.stores.create(contender);
  try {
    return await run(store);
  } finally {
    await bench.stores.drop(store);
  }
}

function tailCases(bench) {
  const cases = TAILS.map(({ label, ...one }) => ({ contender: ours(bench), label, ...one }));
  const peer = { contender: redis, ...TAILS[0] };
  return [...cases, ...(hasRedis(bench) ? [{ ...peer, label: 'XREAD BLOCK, 1 reader' }] : [])].map((one) => ({
    ...one,
    key: keyOf(one.contender.name, one.label, one.perSecond),
    group: `${one.label.includes('of one') ? '1,000 readers at once' : 'one reader of each frame'}, ${thousands(one.perSecond)} frames a second`,
    streams: jobs(bench, one.streams),
    tailsEach: jobs(bench, one.tailsEach),
    forMs: TAIL_MS[bench.options.size],
  }));
}

function tailLatency(one, bench) {
  const { streams, tailsEach, perSecond, forMs } = one;
  const isOurs = one.contender.side === 'ours';
  const module = isOurs ? OURS : REDIS;
  const skipped = Math.ceil((perSecond * WARM_UP_MS) / 1_000);
  const count = skipped + Math.ceil((perSecond * forMs) / 1_000);
  const open = isOurs ? withStore : withBareStore;
  return open(bench, one, (target) =>
    withSeats(2, async ([writer, reader]) => {
      const ids = isOurs ? await writer.call(OURS, 'hold', { target, streams, present: 1 }) : [];
      await settleStore(target, 'analysed');
      await reader.call(module, 'follow', { target, ids, tailsEach, skipped });
      return bench.watched(async () => {
        await writer.call(module, 'writePaced', { target, count, perSecond });
        return reader.call(module, 'received', { expected: count * tailsEach });
      });
    }),
  );
}

function followedCases(bench) {
  return WRITERS.flatMap((writers) =>
    [0, 1].map((tails) => ({
      contender: ours(bench),
      key: keyOf('followed', writers, tails),
      group: `${writers} writers, one frame of 200 bytes a call, each its own stream`,
      label: tails === 0 ? 'nobody follows' : 'each followed in another process',
      writers,
      tails,
      calls: jobs(bench, FOLLOWED_CALLS[bench.options.size]),
      ...(tails === 0 ? {} : { relativeTo: { key: keyOf('followed', writers, 0), label: 'followed ÷ not' } }),
    })),
  );
}

function followedRate({ writers, tails, calls, ...one }, bench) {
  return withStore(bench, one, (target) =>
    withSeats(2, async ([writer, reader]) => {
      const ids = await writer.call(OURS, 'hold', {
        target,
        streams: writers,
        present: 1,
        poolSize: writers,
      });
      await settleStore(target, 'analysed');
      const followed = tails === 0 ? [] : ids;
      await reader.call(OURS, 'follow', { target, ids: followed, tailsEach: tails, skipped: 0 });
      return bench.watched(async () => {
        const figures = await writer.call(OURS, 'appendTogether', { calls });
        await reader.call(OURS, 'received', { expected: followed.length === 0 ? 0 : calls });
        return figures;
      });
    }),
  );
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const streamAppend = {
  name: 'stream-append',
  title: 'Append to a stream',
  metrics: [
    { name: 'frames/s', better: 'higher' },
    { name: 'p50 ms a call', better: 'lower' },
    { name: 'p99 ms a call', better: 'lower' },
  ],
  cases: appendCases,
  run: (one, bench) => APPENDS[one.way](one, bench),
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const streamTail = {
  name: 'stream-tail',
  title: 'From a write to its readers in another process',
  metrics: [
    { name: 'p50 ms', better: 'lower' },
    { name: 'p99 ms', better: 'lower' },
  ],
  cases: tailCases,
  run: tailLatency,
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const streamFollowed = {
  name: 'stream-followed',
  title: 'What followers cost those who write (ours only)',
  metrics: [
    { name: 'frames/s', better: 'higher' },
    { name: 'p50 ms a call', better: 'lower' },
    { name: 'p99 ms a call', better: 'lower' },
  ],
  cases: followedCases,
  run: followedRate,
};
