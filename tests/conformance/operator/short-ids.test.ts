/**
 * Short ids: executions and flows are found by the beginning of their uuids, and every id is shortened to a beginning that
 * finds it again, however many were minted in the same millisecond.
 */
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { formatExecutionId, mintExecution } from '../../../src/contract/ids.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
/** Each test mints its ids in a millisecond of its own, long before those of other tests. */
let minute = Date.UTC(2001, 0);

function mint(count: number): ExecutionId[] {
  minute += 60_000;
  return Array.from({ length: count }, () => {
    const { partition, uuid } = mintExecution(minute, randomBytes(10));
    return formatExecutionId(partition, uuid);
  });
}

function uuidOf(id: string): string {
  return id.slice(id.indexOf('}:') + 2);
}

async function submitAll(ids: readonly ExecutionId[], kind = newKind()): Promise<void> {
  await bench.engine.executions.submit(ids.map((executionId) => ({ kind, executionId })));
}

async function found(prefix: string): Promise<{ ids: string[]; hasMore: boolean }> {
  const { executions, hasMore } = await bench.engine.executions.find(prefix);
  return { ids: executions.map(({ executionId }) => executionId), hasMore };
}

/** The highest first. */
function inOrder(ids: readonly string[]): string[] {
  return ids.toSorted((one, other) => (uuidOf(one) < uuidOf(other) ? 1 : -1));
}

describe('finding an execution', () => {
  it('works by its id, its uuid and any beginning of its uuid that no other has', async () => {
    const [id] = mint(1) as [ExecutionId];
    await submitAll([id]);
    const uuid = uuidOf(id);
    for (const prefix of [id, uuid, uuid.slice(0, 30), uuid.slice(0, 13)])
      expect(await found(prefix)).toEqual({ ids: [id], hasMore: false });
  });

  it('returns what a list returns', async () => {
    const namespace = newKind();
    const id = await bench.submit({ namespace, tags: { team: 'a' }, delay: 60_000 });
    const { executions } = await bench.engine.executions.list({ filter: { namespace } });
    expect(await bench.engine.executions.find(uuidOf(id))).toEqual({ executions, hasMore: false });
  });

  it('returns all that begin with the prefix, and says when there are more than ten', async () => {
    const ids = mint(10);
    await submitAll(ids);
    const prefix = uuidOf(ids[0]!).slice(0, 13);
    expect(await found(prefix)).toEqual({ ids: inOrder(ids), hasMore: false });
    const { partition, uuid } = mintExecution(minute, randomBytes(10));
    const another = formatExecutionId(partition, uuid);
    await submitAll([another]);
    expect(await found(prefix)).toEqual({ ids: inOrder([...ids, another]).slice(0, 10), hasMore: true });
  });

  it('returns nothing for an unknown beginning, nor for an id with another partition', async () => {
    const [known, unknown] = mint(2) as [ExecutionId, ExecutionId];
    await submitAll([known]);
    expect(await found(uuidOf(unknown))).toEqual({ ids: [], hasMore: false });
    expect(await found(misplaced(known))).toEqual({ ids: [], hasMore: false });
  });

  it('refuses a prefix that is too short', async () => {
    await expect(bench.engine.executions.find('018')).rejects.toMatchObject({ code: 'invalid_id' });
  });
});

describe('shortening', () => {
  it('tells 10,000 ids of one millisecond apart, each by a beginning that finds it', async () => {
    const ids = mint(10_000);
    await submitAll(ids);
    const short = await bench.engine.executions.shorten(ids);
    expect(new Set(short).size).toBe(10_000);
    expect(short.every((text, index) => uuidOf(ids[index]!).startsWith(text))).toBe(true);
    // Sorted, the one after a prefix is the only other that could begin with it.
    const sorted = short.toSorted();
    expect(sorted.filter((text, index) => sorted[index + 1]?.startsWith(text))).toEqual([]);
    const sample = Array.from({ length: 100 }, (_, index) => index * 100);
    for (const index of sample) expect((await found(short[index]!)).ids).toEqual([ids[index]]);
  });

  it('gives 13 characters to an id that is alone in its millisecond', async () => {
    const [id] = mint(1) as [ExecutionId];
    await submitAll([id]);
    expect(await bench.engine.executions.shorten([id, id])).toEqual([
      uuidOf(id).slice(0, 13),
      uuidOf(id).slice(0, 13),
    ]);
  });

  it('leaves an id that does not exist as it is', async () => {
    const [id] = mint(1) as [ExecutionId];
    expect(await bench.engine.executions.shorten([id])).toEqual([id]);
    expect(await bench.engine.executions.shorten([])).toEqual([]);
  });

  it('refuses what is no id, and names it', async () => {
    await expect(bench.engine.executions.shorten(['01890a5d'])).rejects.toMatchObject({
      code: 'invalid_id',
      field: 'ids[0]',
    });
  });

  it('tells flows from their members', async () => {
    const kind = newKind();
    const { flowId, members } = await bench.engine.flows.submit({
      name: 'pair',
      members: [
        { name: 'one', kind },
        { name: 'two', kind },
      ],
    });
    const ids = [flowId, ...Object.values(members)];
    const short = await bench.engine.executions.shorten(ids);
    expect(new Set(short).size).toBe(3);
    const { flows, hasMore } = await bench.engine.flows.find(short[0]!);
    expect({ ids: flows.map((flow) => flow.flowId), hasMore }).toEqual({ ids: [flowId], hasMore: false });
    expect(flows[0]).toMatchObject({ name: 'pair', state: 'running' });
    expect((await found(short[1]!)).ids).toEqual([ids[1]]);
    expect((await bench.engine.flows.find(short[1]!)).flows).toEqual([]);
  });
});
