/**
 * What tails of one engine share, and what remains of them: they read the finished steps together, a reader that
 * changes its copy affects no other, outages of the database lose nothing, and a reader that leaves leaves nothing
 * behind. Ten thousand of them are in many-tails.test.ts.
 */
import { getEventListeners } from 'node:events';
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { stream, EngineError, LIMITS, task, type StreamItem } from '../../../src/index.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import { hintChannel } from '../../../src/engine/database/names.ts';
import { SharedHistory, type TailHistory } from '../../../src/engine/streams/tail-history.ts';
import { startFaultProxy, type FaultProxy } from '../../../src/testing/fault-proxy.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { patiently } from '../../setup/patience.ts';

const bench = useBench();
/** Slow when the machine is busy with other tests. */
const BUSY = { timeout: patiently(90_000) };
const SOON = { timeout: patiently(20_000), interval: 15 };
const AGAIN = { retry: { maxRetries: 1, backoff: { type: 'fixed' as const, delay: 0 } } };
/** What identifies the statements that read finished steps, the lease of a frame, and the heads of parked streams. */
const STEPS = 'SELECT DISTINCT step_name';
const LEASE = 'SELECT lease_epoch AS epoch FROM';
const HEADS = 'WITH ORDINALITY a(uuid';
const OVER = { done: true, value: undefined };

interface Watched {
  connection: Connection;
  /** How often finished steps were read. */
  askedForSteps(): number;
  /** The executions that were polled, by poll. */
  looks: string[][];
}

async function watched(): Promise<Watched> {
  const pool = new pg.Pool({ connectionString: bench.database.url, max: 2 });
  pool.on('error', () => undefined);
  let asked = 0;
  const looks: string[][] = [];
  /** An array is sent as a literal. */
  const elementsOf = (literal: unknown): string[] => String(literal).replaceAll(/[{}"]/g, '').split(',');
  const watching: PoolLike = {
    query(config) {
      if (config.text.includes(STEPS)) asked += 1;
      if (config.text.includes(HEADS)) looks.push(elementsOf(config.values[0]));
      return pool.query(config as pg.QueryConfig);
    },
  };
  const connection = await connect({
    pool: watching,
    listenUrl: bench.database.url,
    reconcile: 'off',
    defaultPolicy: {},
  });
  onTestFinished(async () => {
    await connection.close();
    await pool.end();
  });
  return { connection, askedForSteps: () => asked, looks };
}

const iteratorOf = <Item>(items: AsyncIterable<Item>): AsyncIterator<Item> => items[Symbol.asyncIterator]();

async function follow(items: AsyncIterable<StreamItem>, told: StreamItem[] = []): Promise<StreamItem[]> {
  for await (const item of items) told.push(item);
  return told;
}

async function write(claim: Claim, payload: string, more: { step?: { name: string } } = {}): Promise<void> {
  const outcome = await bench.port.appendFrames(claim, [{ payload, frameType: 'tokens', ...more }]);
  expect(outcome).toMatchObject({ outcome: 'appended' });
}

/** The attempt frees its worker and continues under another lease. */
async function restart(claim: Claim, kind: string): Promise<Claim> {
  const condition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['door'] } as const;
  await bench.port.suspend(claim, { waits: [{ name: 'door', condition, reason: 'approval' }] });
  await bench.engine.waitpoints.approve(claim.executionId, 'door', { by: 'ann' });
  return bench.claimOne(kind);
}

async function retry(claim: Claim, kind: string): Promise<Claim> {
  await bench.port.fail(claim, { message: 'not yet' });
  await bench.port.fireTimers();
  return bench.claimOne(kind);
}

/** A claim that has finished the step `draft`, after a frame in it. */
async function withFinishedStep(kind: string): Promise<Claim> {
  const claim = await bench.running({ kind, policy: AGAIN });
  await write(claim, 'in the step', { step: { name: 'draft' } });
  await bench.port.recordStep(claim, { name: 'draft', value: null });
  return claim;
}

/** Makes all readers of streams poll now. */
async function lookNow(): Promise<void> {
  const { schema } = bench.database;
  await bench.database.query('SELECT pg_notify($1, $2)', [
    hintChannel(schema),
    JSON.stringify({ streams: 'all' }),
  ]);
}

const isAbout = ({ type }: StreamItem): boolean => type === 'resumed' || type === 'superseded';

describe('many tails of an execution', () => {
  const MANY = 500;

  it('read the finished steps once when it restarts, and once when another attempt follows', async () => {
    const kind = newKind();
    const first = await withFinishedStep(kind);
    const { connection, askedForSteps } = await watched();
    const told = Array.from({ length: MANY }, (): StreamItem[] => []);
    const tails = Promise.all(told.map((own) => follow(connection.streams.tail(first.executionId), own)));
    const allTold = async (type: StreamItem['type']): Promise<void> => {
      const isTold = (own: StreamItem[]): boolean => own.some((item) => item.type === type);
      await expect.poll(() => told.filter(isTold).length, SOON).toBe(MANY);
    };
    await allTold('frame');
    expect(askedForSteps()).toBe(0);
    const second = await restart(first, kind);
    await allTold('resumed');
    expect(askedForSteps()).toBe(1);
    const third = await retry(second, kind);
    await allTold('superseded');
    expect(askedForSteps()).toBe(2);
    await bench.port.complete(third);
    const finishedSteps = [{ name: 'draft', key: '' }];
    for (const own of await tails)
      expect(own.filter(isAbout)).toMatchObject([
        { type: 'resumed', leaseEpoch: second.leaseEpoch, finishedSteps },
        { type: 'superseded', by: 1, finishedSteps },
      ]);
  });

  it('have a copy of the finished steps each', async () => {
    const kind = newKind();
    const first = await withFinishedStep(kind);
    await bench.port.complete(await retry(first, kind));
    const { connection, askedForSteps } = await watched();
    for (let reader = 0; reader < 2; reader += 1) {
      const told = (await follow(connection.streams.tail(first.executionId))).find(isAbout);
      if (told?.type !== 'superseded') throw new Error('It was not told.');
      expect(told.finishedSteps).toEqual([{ name: 'draft', key: '' }]);
      told.finishedSteps[0]!.name = 'mine';
      told.finishedSteps.push({ name: 'mine too', key: '' });
    }
    expect(askedForSteps()).toBe(1);
  });

  it('do not share a failed read', async () => {
    const answers = [Promise.reject(new EngineError('unavailable', 'Gone.')), Promise.resolve([])];
    answers[0]!.catch(() => undefined);
    const history: TailHistory = { epochAt: async () => null, finishedSteps: () => answers.shift()! };
    const shared = new SharedHistory(history);
    const ask = () => shared.finishedSteps({ partition: 0, uuid: 'x' }, 0, 1);
    const together = await Promise.allSettled([ask(), ask()]);
    expect(together.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await ask()).toEqual([]);
  });
});

describe('a database that is unavailable for a while', () => {
  /** More often than a statement is retried: the tail itself has to try again. */
  const CUTS = 15;

  async function throughProxy(): Promise<{ connection: Connection; proxy: FaultProxy }> {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
    const databaseUrl = proxy.url(bench.database.url);
    const connection = await bench.another({ databaseUrl });
    onTestFinished(async () => {
      await connection.close();
      await proxy.close();
    });
    return { connection, proxy };
  }

  it.each([
    ['the finished steps', STEPS, 'from the beginning'],
    ['the lease of the frame it resumes after', LEASE, 'from its first frame on'],
  ])('loses nothing for a tail that reads %s', async (_, statement, from) => {
    const kind = newKind();
    const first = await withFinishedStep(kind);
    const second = await restart(first, kind);
    await write(second, 'under the second lease');
    const { frames } = await bench.engine.streams.read(first.executionId);
    const request = from === 'from the beginning' ? {} : { after: `0/${frames[0]!.id}` };
    const { connection, proxy } = await throughProxy();
    const cuts = Array.from({ length: CUTS }, () => proxy.cutBefore(statement));
    const told = follow(connection.streams.tail(first.executionId, request));
    told.catch(() => undefined); // awaited below
    await cuts[0];
    await write(second, 'meanwhile');
    await bench.port.complete(await retry(second, kind));
    await Promise.race([Promise.all(cuts), told]);
    const undisturbed = await follow(bench.engine.streams.tail(first.executionId, request));
    expect(await told).toEqual(undisturbed);
    expect(undisturbed.filter(isAbout)).toMatchObject([
      { type: 'resumed', finishedSteps: [{ name: 'draft' }] },
      { type: 'superseded', finishedSteps: [{ name: 'draft' }] },
    ]);
  });
});

describe('a typed reader', () => {
  const streams = {
    tokens: stream.durable<string>(),
    level: stream.live<number>(),
    draft: stream.summary<{ title: string }>(),
  };
  const answer = task('answer', { streams });
  type Open = (connection: Connection, id: string, signal: AbortSignal) => AsyncIterable<unknown>;
  const readers: [string, Open][] = [
    ['durable', (from, id, signal) => from.execution(answer, id).streams.tokens.tail({ signal })],
    ['live', (from, id, signal) => from.execution(answer, id).streams.level.tail({ signal })],
    ['summary', (from, id, signal) => from.execution(answer, id).streams.draft.watch({ signal })],
  ];
  const leaving: [string, (items: AsyncIterable<unknown>, parked: () => Promise<void>) => Promise<void>][] = [
    [
      'inside its loop',
      async (items) => {
        for await (const item of items) if (item !== undefined) break;
      },
    ],
    [
      'while it waits',
      async (items, parked) => {
        const iterator = iteratorOf(items);
        await iterator.next();
        const waiting = [iterator.next(), iterator.next()];
        await parked();
        expect(await iterator.return!()).toEqual(OVER);
        expect(await Promise.all(waiting)).toEqual([OVER, OVER]);
      },
    ],
  ];

  it.each(readers.flatMap(([kind, open]) => leaving.map(([how, leave]) => ({ kind, how, open, leave }))))(
    'that is left $how leaves nothing behind: $kind',
    async ({ open, leave }) => {
      const { connection, looks } = await watched();
      const [left, stays] = [await bench.running(), await bench.running()];
      await bench.port.appendFrames(left, [
        { payload: 'one', frameType: 'tokens' },
        { payload: 1, frameType: 'level', mode: 'best_effort' },
      ]);
      const staying = follow(connection.streams.tail(stays.executionId));
      const { signal } = new AbortController();
      const uuids = [stays, left].map(({ executionId }) => parseExecutionId(executionId).uuid);
      // A stream is polled as long as a reader waits there.
      const waitedAt = async (expected: string[]): Promise<void> => {
        looks.length = 0;
        await lookNow();
        await expect.poll(() => looks.at(-1)?.toSorted(), SOON).toEqual(expected.toSorted());
      };
      await leave(open(connection, left.executionId, signal), () => waitedAt(uuids));
      expect(getEventListeners(signal, 'abort')).toEqual([]);
      await waitedAt(uuids.slice(0, 1));
      await bench.port.complete(stays);
      await staying;
    },
  );

  it('beyond the limit is refused, and each that leaves makes room for one', BUSY, async () => {
    const { connection } = await watched();
    const claim = await bench.running();
    const { tokens } = connection.execution(answer, claim.executionId).streams;
    const all = Array.from({ length: LIMITS.tails }, () => iteratorOf(tokens));
    const waiting = Promise.allSettled(all.map((reader) => reader.next()));
    const isRefused = () =>
      expect(iteratorOf(tokens).next()).rejects.toMatchObject({
        code: 'too_many',
        message: expect.stringMatching(/\.$/),
      });
    await bench.engine.executions.describe(claim.executionId);
    await isRefused();
    await all[0]!.return!();
    await bench.engine.executions.describe(claim.executionId);
    const inItsPlace = iteratorOf(tokens).next();
    await bench.engine.executions.describe(claim.executionId);
    await isRefused();
    await write(claim, 'a');
    expect(await inItsPlace).toMatchObject({ value: { type: 'frame', payload: 'a' } });
    const [left, ...others] = await waiting;
    expect(left).toEqual({ status: 'fulfilled', value: OVER });
    expect(others.filter(({ status }) => status === 'rejected')).toEqual([]);
  });
});
