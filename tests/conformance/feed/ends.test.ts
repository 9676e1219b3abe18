/**
 * Reading until now, and false hints: a reader stops at the position that was the last when it was called, and trusts
 * only the database.
 */
import { expect, it, onTestFinished } from 'vitest';
import { openEngine } from '../../../src/engine/open.ts';
import { hintChannel } from '../../../src/engine/database/names.ts';
import type { FeedEvent } from '../../../src/index.ts';
import { countingPool, endOne, take } from './following.ts';
import { newKind, useBench } from '../open.ts';
import { patiently } from '../../setup/patience.ts';

const bench = useBench();
const idOf = (event: FeedEvent): string => ('executionId' in event ? event.executionId : '');

async function everything(options: Parameters<typeof bench.engine.events.subscribe>[0]): Promise<string[]> {
  const ids: string[] = [];
  for await (const event of await bench.engine.events.subscribe({ ...options, until: 'now' })) {
    if (event.type !== 'disconnected') ids.push(idOf(event));
  }
  return ids;
}

it('until now yields what was committed before the call, and finishes', async () => {
  const kind = newKind();
  const ids = [await endOne(bench, kind), await endOne(bench, kind)];
  const subscription = await bench.engine.events.subscribeCompletions({
    from: 'beginning',
    filter: { kind },
    until: 'now',
  });
  const later = await endOne(bench, kind);
  expect((await take(subscription, 2)).map(idOf)).toEqual(ids);
  expect(await subscription.next()).toEqual({ done: true, value: undefined });
  expect(await everything({ from: subscription.cursor, filter: { kind, families: ['completion'] } })).toEqual(
    [later],
  );
});

it('until now finishes at once when there is nothing, or nothing matches', async () => {
  const kind = newKind();
  await endOne(bench, kind);
  expect(await everything({ from: 'now' })).toEqual([]);
  expect(await everything({ from: 'beginning', filter: { kind: newKind() } })).toEqual([]);
});

it('a hint of a position that does not exist wakes a reader once and does not keep it busy', async () => {
  const { pool, count, end } = countingPool(bench.database.url);
  const { engine } = await openEngine({ pool, listenUrl: bench.database.url });
  onTestFinished(async () => {
    await engine.close();
    await end();
  });
  const kind = newKind();
  const subscription = await engine.events.subscribeCompletions({ filter: { kind } });
  const next = subscription.next();
  const reads = (): number => count('ff_read_events');
  await expect.poll(reads, { timeout: patiently(10_000) }).toBeGreaterThan(0);
  const before = reads();
  let hints = 0;
  // Repeated, because the listener may not be connected yet.
  const hinted = async (): Promise<number> => {
    hints += 1;
    await bench.database.query('SELECT pg_notify($1, $2)', [
      hintChannel(bench.database.schema),
      JSON.stringify({ events: '9223372036854775807' }),
    ]);
    return reads();
  };
  await expect.poll(hinted, { timeout: patiently(10_000) }).toBeGreaterThan(before);
  const looks = (): number => count('ff_sequence');
  const looked = looks();
  await expect.poll(looks, { timeout: patiently(10_000) }).toBeGreaterThan(looked + 3);
  // A reader that trusted the hint would read forever.
  expect(reads() - before).toBeLessThan(hints + 5);
  const id = await endOne(bench, kind);
  expect(await next).toMatchObject({ value: { executionId: id } });
});
