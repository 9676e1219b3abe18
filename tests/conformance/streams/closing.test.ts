/**
 * Every way an attempt can finish closes its stream with a reason and wakes its readers at once: the reader here cannot
 * poll, it has to be notified. An attempt that wrote nothing is closed too.
 */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { connect } from '../../../src/connect/connect.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import { openEngine, type Engine } from '../../../src/engine/open.ts';
import { setRetention } from '../../../src/engine/upkeep/retention-setting.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionPolicy, StreamCloseReason, StreamItem, TimeoutBehaviour } from '../../../src/index.ts';
import { expiredLeases } from '../../../src/engine/upkeep/expired-leases.ts';
import { runPass } from '../../../src/engine/upkeep/pass.ts';
import { retention } from '../../../src/engine/upkeep/retention.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import { hintChannel } from '../../../src/engine/database/names.ts';
import { LEASE_MS, LISTENING, newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;
const WHY = { reason: 'why' };
const AGAIN: ExecutionPolicy = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: HOUR_MS } } };
const LOOK = /unnest\(\$1::uuid\[\], \$2::smallint\[\], \$3::integer\[\]\)/;
const READ = /ff_read_frames/;
const NEVER = new Promise<never>(() => undefined);

/** Finishes the execution that is tailed, as another process. */
let writer: Engine;
let context: EngineContext;
/** Tails; where it can listen, its polls never return. */
let reader: Pick<Engine, 'streams' | 'close'>;
/** The execution of each stream the reader has read, once per read. */
const reads: unknown[] = [];
const closing: (() => Promise<void>)[] = [];

function blindPool(): PoolLike & { end(): Promise<void> } {
  const pool = new pg.Pool({ connectionString: bench.database.url, max: 4 });
  pool.on('error', () => undefined);
  return {
    async query(config) {
      if (LOOK.test(config.text)) return NEVER;
      const answer = await pool.query(config as pg.QueryConfig);
      if (READ.test(config.text)) reads.push(config.values?.[0]);
      return answer;
    },
    end: () => pool.end(),
  };
}

beforeAll(async () => {
  const url = bench.database.url;
  const opened = await openEngine({ databaseUrl: url, ...(LISTENING ? {} : { listen: 'off' }) });
  ({ engine: writer, context } = opened);
  closing.push(() => writer.close());
  reader = writer;
  if (!LISTENING) return;
  const pool = blindPool();
  reader = await connect({ pool, listenUrl: url, reconcile: 'off' });
  closing.push(
    () => reader.close(),
    () => pool.end(),
  );
  await expectHeard();
});

afterAll(async () => {
  for (const close of closing) await close();
});

/** Returns once the reader is notified of a frame: from then on the writer knows that there is a reader. */
async function expectHeard(): Promise<void> {
  const claim = await bench.running();
  const next = reader.streams.tail(claim.executionId)[Symbol.asyncIterator]().next();
  let isTold = false;
  void next.then(() => (isTold = true));
  await vi.waitFor(async () => {
    await writer.worker.appendFrames(claim, [{ payload: 'x' }]);
    expect(isTold).toBe(true);
  }, WAIT);
  await bench.port.complete(claim);
}

/** A short form of an item. */
function spoken(item: StreamItem): string {
  if (item.type === 'closed' || item.type === 'paused') return `${item.type} ${item.reason}`;
  if (item.type === 'superseded') return `superseded by ${item.by}`;
  return item.type;
}

interface Followed {
  told: string[];
  /** Resolves once it has received this item. */
  hear(word: string): Promise<void>;
  /** Resolves once it has read what is stored, and waits. */
  parked(): Promise<void>;
  stop(): Promise<void>;
}

function follow(claim: Pick<Claim, 'executionId'>): Followed {
  const told: string[] = [];
  const stop = new AbortController();
  const { uuid } = parseExecutionId(claim.executionId);
  const tailing = (async () => {
    for await (const item of reader.streams.tail(claim.executionId, { signal: stop.signal }))
      told.push(spoken(item));
  })().catch(() => undefined);
  return {
    told,
    async hear(word) {
      await expect.poll(() => told, WAIT).toContain(word);
    },
    async parked() {
      // It is registered as waiting before it receives what was read.
      const own = () => reads.filter((read) => read === uuid).length;
      if (LISTENING) await expect.poll(own, WAIT).toBeGreaterThanOrEqual(1);
    },
    async stop() {
      stop.abort();
      await tailing;
    },
  };
}

async function fire(ms: number): Promise<void> {
  await bench.database.moveClock(ms);
  await writer.worker.fireTimers();
}

async function lapse(): Promise<void> {
  await bench.database.moveClock(LEASE_MS);
  await runPass(context, expiredLeases, 500, new AbortController().signal);
}

async function suspend(claim: Claim, onTimeout?: TimeoutBehaviour): Promise<void> {
  const condition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['door'] } as const;
  const limit = onTimeout === undefined ? {} : { timeoutMs: HOUR_MS, onTimeout };
  await writer.worker.suspend(claim, { waits: [{ name: 'door', condition, ...limit }] });
}

interface Ending {
  title: string;
  policy?: ExecutionPolicy;
  /** Done before the tail starts. */
  first?: (claim: Claim) => Promise<unknown>;
  end: (claim: Claim) => Promise<unknown>;
  reason: StreamCloseReason;
  goesOn?: true;
}

const timingOut = (onTimeout: TimeoutBehaviour, reason: StreamCloseReason): Ending => ({
  title: `a suspension that timed out, by ${onTimeout}`,
  first: (claim) => suspend(claim, onTimeout),
  end: () => fire(HOUR_MS),
  reason,
});

const ENDINGS: Ending[] = [
  { title: 'complete', end: (claim) => writer.worker.complete(claim), reason: 'attempt_success' },
  { title: 'fail', end: (claim) => writer.worker.fail(claim, { message: 'no' }), reason: 'attempt_failure' },
  {
    title: 'fail, with a retry left',
    policy: AGAIN,
    end: (claim) => writer.worker.fail(claim, { message: 'no' }),
    reason: 'attempt_failure',
    goesOn: true,
  },
  {
    title: 'cancel',
    end: ({ executionId }) => writer.executions.cancel(executionId, WHY),
    reason: 'attempt_cancelled',
  },
  {
    title: 'cancel while suspended',
    first: (claim) => suspend(claim),
    end: ({ executionId }) => writer.executions.cancel(executionId, WHY),
    reason: 'attempt_cancelled',
  },
  { title: 'a lease that ran out', end: lapse, reason: 'lease_expired' },
  {
    title: 'a lapsed lease, with a retry left',
    policy: AGAIN,
    end: lapse,
    reason: 'lease_expired',
    goesOn: true,
  },
  {
    title: 'revoke',
    end: ({ executionId }) => writer.executions.revokeLease(executionId, WHY),
    reason: 'reclaimed',
    goesOn: true,
  },
  {
    title: 'one revocation too many',
    policy: { maxReclaims: 0 },
    end: ({ executionId }) => writer.executions.revokeLease(executionId, WHY),
    reason: 'reclaimed',
  },
  {
    title: 'an attempt that took too long',
    policy: { attemptTimeout: 1_000 },
    end: () => fire(1_000),
    reason: 'expired',
  },
  {
    title: 'an attempt that took too long, with a retry left',
    policy: { attemptTimeout: 1_000, ...AGAIN },
    end: () => fire(1_000),
    reason: 'expired',
    goesOn: true,
  },
  {
    title: 'the deadline',
    policy: { deadline: 1_000 },
    end: () => fire(1_000),
    reason: 'expired',
  },
  {
    title: 'the deadline while suspended',
    policy: { deadline: 1_000 },
    first: (claim) => suspend(claim),
    end: () => fire(1_000),
    reason: 'expired',
  },
  timingOut('fail', 'attempt_failure'),
  timingOut('expire', 'expired'),
  timingOut('cancel', 'attempt_cancelled'),
];

describe.each(ENDINGS)('$title', ({ policy = {}, first, end, reason, goesOn }) => {
  it.each([['a frame'], ['nothing']])(
    'closes a stream with %s, and notifies its readers',
    async (written) => {
      const claim = await bench.running({ kind: newKind(), policy });
      if (written === 'a frame') await writer.worker.appendFrames(claim, [{ payload: 'x' }]);
      await first?.(claim);
      const followed = follow(claim);
      if (first !== undefined) await followed.hear('paused waiting_for_signal');
      else if (written === 'a frame') await followed.hear('frame');
      await followed.parked();
      const once = reader.streams.tailOnce(claim.executionId, {
        attemptIndex: 0,
        after: '9000000000000-9',
        block: 20_000,
      });
      await end(claim);
      await followed.hear(`closed ${reason}`);
      expect((await once).closed).toMatchObject({ reason });
      const expected = [
        ...(written === 'a frame' ? ['frame'] : []),
        ...(first === undefined ? [] : ['paused waiting_for_signal']),
        `closed ${reason}`,
        ...(goesOn ? ['superseded by 1'] : []),
      ];
      if (goesOn) await followed.hear('superseded by 1');
      await followed.stop();
      expect(followed.told).toEqual(expected);
      const page = await reader.streams.read(claim.executionId, { attemptIndex: 0 });
      expect(page.closed).toEqual({ reason, atMs: expect.any(Number) as number });
      expect(page.frames).toHaveLength(written === 'a frame' ? 1 : 0);
    },
  );
});

describe('an execution that never started', () => {
  it('closes its stream for readers when it finishes', async () => {
    const id = await bench.submit();
    const followed = follow({ executionId: id });
    await followed.parked();
    const once = reader.streams.tailOnce(id, { attemptIndex: 0, block: 20_000 });
    await writer.executions.cancel(id, WHY);
    expect(await once).toMatchObject({ frames: [], closed: { reason: 'attempt_cancelled' } });
    await followed.hear('closed attempt_cancelled');
    await followed.stop();
    expect(followed.told).toEqual(['closed attempt_cancelled']);
  });
});

describe('an execution past its retention', () => {
  it('is reported as forgotten to readers that still tail it', async () => {
    const claim = await bench.running();
    await writer.worker.appendFrames(claim, [{ payload: 'x' }]);
    const followed = follow(claim);
    await followed.hear('frame');
    await followed.parked();
    const { partition, uuid } = parseExecutionId(claim.executionId);
    // In one transaction, so that nobody sees it finished.
    const client = await bench.database.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ff_cancel($1, $2, 'why', 'me')`, [[uuid], [partition]]);
    await client.query('SELECT ff_forget($1, $2, 0, 0)', [[uuid], [partition]]);
    await client.query('COMMIT');
    await client.query('SELECT pg_notify($1, $2)', [
      hintChannel(bench.database.schema),
      JSON.stringify({ streams: [uuid] }),
    ]);
    await client.end();
    await followed.hear('forgotten');
    expect(followed.told).toEqual(['frame', 'forgotten']);
  });

  it('is deleted with its frames, its head and its document', async () => {
    await setRetention(context, 24 * HOUR_MS);
    const claim = await bench.running();
    await writer.worker.appendFrames(claim, [{ payload: 'x' }, { payload: { a: 1 }, mode: 'summary' }]);
    await writer.worker.complete(claim);
    await bench.database.moveClock(25 * HOUR_MS);
    await runPass(context, retention(), 500, new AbortController().signal);
    const { uuid } = parseExecutionId(claim.executionId);
    const left = await bench.database.query(
      `SELECT 1 FROM ff_frame WHERE execution_id = $1 UNION ALL SELECT 1 FROM ff_stream_meta WHERE execution_id = $1
       UNION ALL SELECT 1 FROM ff_stream_summary WHERE execution_id = $1`,
      [uuid],
    );
    expect(left.rows).toEqual([]);
    await expect(reader.streams.read(claim.executionId)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is deleted in several passes when it has many frames', async () => {
    const [long, short] = [await bench.running(), await bench.running()];
    for (const claim of [long, short]) await writer.worker.appendFrames(claim, [{ payload: 'x' }]);
    const { partition, uuid } = parseExecutionId(long.executionId);
    await bench.database.query(
      `INSERT INTO ff_frame (execution_id, partition_key, attempt_index, lease_epoch, ts_ms, seq, mode, encoding, frame_type, payload)
       SELECT $1, $2, 0, 1, 9e15::bigint, n, 'durable', 'text', '', '' FROM generate_series(1, 50000) n`,
      [uuid, partition],
    );
    for (const claim of [long, short]) await writer.worker.complete(claim);
    const forget = async () => {
      const { rows } = await bench.database.query<{ outcome: string }>(
        'SELECT outcome FROM ff_forget($1, $2, 0, 0)',
        [
          [uuid, parseExecutionId(short.executionId).uuid],
          [partition, parseExecutionId(short.executionId).partition],
        ],
      );
      return rows.map((row) => row.outcome).toSorted();
    };
    expect(await forget()).toEqual(['begun', 'begun']);
    const left = await bench.database.query('SELECT 1 FROM ff_frame WHERE execution_id = $1', [uuid]);
    expect(left.rows).toHaveLength(1);
    expect(await forget()).toEqual(['forgotten', 'forgotten']);
  });
});
