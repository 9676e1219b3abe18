/**
 * What tests of consumers share: events to consume, a handler that records them in its transaction, in a table that
 * would show every duplicate, and consumers that stop with their test.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type {
  Consumer,
  ConsumeOptions,
  ConsumerSnapshot,
  EventHandler,
  ExecutionId,
  FeedEvent,
  SqlTransaction,
} from '../../../src/index.ts';
import { newKind, useBench, type Bench } from '../../conformance/open.ts';
import { patiently } from '../../setup/patience.ts';

export const SOON = { timeout: patiently(20_000), interval: 15 };
export const LONG = { timeout: patiently(60_000) };
let opened: Bench;
/** The bench of the file that opened one last: files of one process share this module. */
export const bench: Pick<Bench, 'engine' | 'database' | 'another'> = {
  get engine() {
    return opened.engine;
  },
  get database() {
    return opened.database;
  },
  another: (options) => opened.another(options),
};

/** Opens a bench with the table for the tests of one file. */
export function useConsuming(): void {
  const own = useBench();
  opened = own;
  beforeAll(() =>
    own.database.query(
      'CREATE TABLE public.seen (id bigint GENERATED ALWAYS AS IDENTITY, name text, position bigint, execution_id text)',
    ),
  );
  afterAll(() => own.database.query('DROP TABLE public.seen'));
}

/** Finishes this many executions of a kind: one event each. */
export async function endSome(kind: string, count: number): Promise<ExecutionId[]> {
  const submitted = await bench.engine.executions.submit(Array.from({ length: count }, () => ({ kind })));
  const ids = submitted.map(({ executionId }) => executionId);
  await bench.engine.cancel(ids, { reason: 'to have an event' });
  return ids;
}

/** Records the events it is given, in the transaction. */
export function projection(name: string): EventHandler {
  return async (events, tx) => {
    await tx.query(
      `INSERT INTO public.seen (name, position, execution_id)
       SELECT $1, * FROM unnest($2::bigint[], $3::text[])`,
      [name, events.map(({ position }) => String(position)), events.map(executionOf)],
    );
  };
}

function executionOf(event: FeedEvent): string {
  return 'executionId' in event ? event.executionId : '';
}

/** In the order of the feed; asserts that they were written in this order. */
export async function seenBy(name: string): Promise<string[]> {
  const found = await bench.database.query<{ position: number; execution_id: string }>(
    'SELECT position, execution_id FROM public.seen WHERE name = $1 ORDER BY id',
    [name],
  );
  const positions = found.rows.map(({ position }) => position);
  expect(positions).toEqual(positions.toSorted((a, b) => a - b));
  return found.rows.map((row) => row.execution_id);
}

export async function expectSeenOnce(name: string, ids: readonly ExecutionId[]): Promise<void> {
  await expect.poll(async () => (await seenBy(name)).length, SOON).toBeGreaterThanOrEqual(ids.length);
  expect((await seenBy(name)).toSorted()).toEqual(ids.toSorted());
}

export async function snapshotOf(name: string): Promise<ConsumerSnapshot> {
  const found = (await bench.engine.consumers.list()).find((consumer) => consumer.name === name);
  if (found === undefined) throw new Error(`${name} is not listed`);
  return found;
}

/** Stops with the test. */
export async function consume<Tx = SqlTransaction>(
  name: string,
  handler: EventHandler<Tx>,
  options: ConsumeOptions<Tx> & { through?: Connection } = {},
): Promise<Consumer> {
  const { through = bench.engine, ...rest } = options;
  const consumer = await through.events.consume(name, handler, rest);
  onTestFinished(() => consumer.stop());
  return consumer;
}

/** Anybody may take over the name now, as if its holder had been silent for too long. */
export async function loosen(name: string): Promise<void> {
  await bench.database.query('UPDATE ff_consumer SET held_until_ms = 0 WHERE name = $1', [name]);
}

export function names(): { name: string; kind: string } {
  return { name: `consumer-${randomUUID()}`, kind: newKind() };
}
