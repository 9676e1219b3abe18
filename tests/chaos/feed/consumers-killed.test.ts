/**
 * A consumer's process is killed around every statement of its batches, and its connection is cut around each of them:
 * another process, or the same one, continues, and what the handler wrote is there exactly once for every event.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { EventHandler, ExecutionId, FeedEvent } from '../../../src/index.ts';
import { HOLD_MS } from '../../../src/engine/feed/consumer.ts';
import { startFaultProxy, type FaultProxy } from '../../../src/testing/fault-proxy.ts';
import { newKind, SOON, useCrew } from '../../worker/crew.ts';
import { inTurns, timeFor } from '../steps/task-processes.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/consumer-process.mjs', import.meta.url));
const PLACES = 3;
const BATCH = 4;
const BATCHES = 2;
const OF_A_BATCH = [
  /BEGIN ISOLATION/,
  /^INSERT INTO public.projected/,
  /SET position|ff_move_consumer/,
  /COMMIT$/,
];
const crew = useCrew();

beforeAll(() =>
  crew.database.query('CREATE TABLE public.projected (name text NOT NULL, execution_id text NOT NULL)'),
);

type When = 'before' | 'after';

interface ProcessOptions {
  name: string;
  kind: string;
  dieAt?: number;
  when?: When;
}

interface ConsumerProcess {
  /** Statements of its batches, in order. */
  readonly statements: string[];
  /** The signal that killed it, or its exit code. */
  ended(): Promise<string | number>;
  /** Tells it to stop. */
  finish(): void;
}

/** Call it inside a test: the process is killed when the test ends. */
function startConsumerProcess(options: ProcessOptions): ConsumerProcess {
  const argument = JSON.stringify({ ...options, url: crew.database.url, batch: BATCH });
  const child = spawn(process.execPath, [FIXTURE, argument], { stdio: ['pipe', 'pipe', 'inherit'] });
  const statements: string[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => statements.push((JSON.parse(line) as { statement: string }).statement));
  child.stdin.on('error', () => undefined);
  const ended = Promise.all([once(child, 'exit'), once(lines, 'close')]);
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await ended;
  });
  return {
    statements,
    async ended() {
      await ended;
      return child.signalCode ?? child.exitCode!;
    },
    finish: () => void child.stdin.end(),
  };
}

/** One completion event each. */
async function endSome(engine: Connection, kind: string, count: number): Promise<ExecutionId[]> {
  const submitted = await engine.executions.submit(Array.from({ length: count }, () => ({ kind })));
  const ids = submitted.map(({ executionId }) => executionId);
  await engine.cancel(ids, { reason: 'to have an event' });
  return ids;
}

function executionOf(event: FeedEvent): string {
  return 'executionId' in event ? event.executionId : '';
}

function projectionOf(name: string): EventHandler {
  return async (events, tx) => {
    const insert = 'INSERT INTO public.projected (name, execution_id) SELECT $1, unnest($2::text[])';
    await tx.query(insert, [name, events.map(executionOf)]);
  };
}

async function projectedBy(name: string): Promise<string[]> {
  const found = await crew.database.query<{ execution_id: string }>(
    'SELECT execution_id FROM public.projected WHERE name = $1 ORDER BY 1',
    [name],
  );
  return found.rows.map((row) => row.execution_id);
}

const filterOf = (kind: string) => ({ kind, families: ['completion'] as const });

async function passedEverything(engine: Connection, wanted: readonly string[]): Promise<boolean> {
  const consumers = await engine.consumers.list();
  return consumers.filter(({ name }) => wanted.includes(name)).every(({ lag }) => lag === 0n);
}

test(
  'every event is projected once, no matter at which statement the process is killed',
  timeFor(2 + 2 * BATCHES * OF_A_BATCH.length),
  async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const ids = (await endSome(engine, kind, BATCH * BATCHES)).toSorted();
    const whole = startConsumerProcess({ name: 'whole', kind });
    await expect.poll(() => projectedBy('whole'), SOON).toEqual(ids);
    whole.finish();
    expect(await whole.ended()).toBe(0);
    const expected = Array.from({ length: BATCHES }, () => OF_A_BATCH).flat();
    expect(whole.statements).toHaveLength(expected.length);
    expected.forEach((part, index) => expect(whole.statements[index]).toMatch(part));

    const deaths = expected.flatMap((_, index) =>
      (['before', 'after'] as const).map((when) => ({
        when,
        dieAt: index + 1,
        name: `${when} ${index + 1}`,
      })),
    );
    await inTurns(PLACES, deaths, async (death) => {
      const doomed = startConsumerProcess({ ...death, kind });
      expect(await doomed.ended()).toBe('SIGKILL');
      expect(doomed.statements).toHaveLength(death.dieAt);
    });
    // Nothing is there before the first commit was sent, and the first batch is there once the second one has begun.
    expect(await projectedBy('before 4')).toEqual([]);
    expect(await projectedBy('before 5')).toHaveLength(BATCH);

    await crew.database.moveClock(HOLD_MS);
    const rescue = { batch: BATCH, filter: filterOf(kind) };
    await Promise.all(deaths.map(({ name }) => engine.events.consume(name, projectionOf(name), rescue)));
    const all = deaths.map(({ name }) => name);
    await expect
      .poll(() => passedEverything(engine, all), { ...SOON, ...timeFor(BATCHES * OF_A_BATCH.length) })
      .toBe(true);
    for (const name of all) expect([name, await projectedBy(name)]).toEqual([name, ids]);
  },
);

describe('a connection that is cut', () => {
  let proxy: FaultProxy;
  beforeAll(async () => {
    proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
  });
  afterAll(() => proxy.close());

  const cuts = OF_A_BATCH.flatMap((part) =>
    (['before', 'after'] as const).map((when) => ({ when, part, name: `cut ${when} ${part.source}` })),
  );

  test.each(cuts)('$when $part loses and duplicates no event', timeFor(2), async ({ when, part, name }) => {
    const direct = await crew.connect();
    const engine = await crew.connect({ databaseUrl: proxy.url(crew.database.url), listen: 'off' });
    const kind = newKind();
    const ids = await endSome(direct, kind, BATCH);
    const struck = when === 'before' ? proxy.cutBefore(part) : proxy.cutAfter(part);
    const reported: number[] = [];
    const handed: string[] = [];
    const write = projectionOf(name);
    const handler: EventHandler = (events, tx) => {
      handed.push(...events.map(executionOf));
      return write(events, tx);
    };
    const onError = (_: unknown, failures: number): void => void reported.push(failures);
    await engine.events.consume(name, handler, { filter: filterOf(kind), onError });
    await struck;
    const late = await endSome(direct, kind, BATCH);
    const all = [...ids, ...late].toSorted();
    await expect.poll(async () => (await projectedBy(name)).length, SOON).toBeGreaterThanOrEqual(all.length);
    expect(await projectedBy(name)).toEqual(all);
    const isOfHandler = part.source.includes('INSERT');
    // Reported once either way, as a handler failure or a database failure, unless the commit had happened.
    const isCommitted = when === 'after' && part.source.includes('COMMIT');
    expect(reported).toEqual(isCommitted ? [] : [isOfHandler ? 1 : 0]);
    // A commit that happened is not repeated because its response was lost.
    if (isCommitted) expect(handed.toSorted()).toEqual(all);
  });

  test('while the consumer waits is recovered from', timeFor(2), async () => {
    const direct = await crew.connect();
    const name = 'cut while waiting';
    const kind = newKind();
    const engine = await crew.connect({ databaseUrl: proxy.url(crew.database.url) });
    const early = await endSome(direct, kind, BATCH);
    const consumer = await engine.events.consume(name, projectionOf(name), { filter: filterOf(kind) });
    await expect.poll(() => projectedBy(name), SOON).toEqual(early.toSorted());
    proxy.cutAll();
    const late = await endSome(direct, kind, BATCH);
    await expect.poll(() => projectedBy(name), SOON).toEqual([...early, ...late].toSorted());
    await consumer.stop();
  });
});
