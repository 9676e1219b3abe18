/**
 * A parent's id finds everything below it, page by page, whatever the size of a page and of the family.
 */
import { expect, it } from 'vitest';
import type { ExecutionId } from '../../../src/index.ts';
import { expectRefused } from '../../engine/refused.ts';
import { useLists } from '../operator/listing.ts';
import { misplaced, newKind, useBench } from '../open.ts';
import { spawn, WHY } from './kit.ts';

const bench = useBench();
const { list, expectList } = useLists(bench);

/** Three levels, each execution at a time of its own. Returns the ids, each followed by those below it. */
async function family(
  widths: readonly [number, number, number],
): Promise<{ root: ExecutionId; ids: ExecutionId[] }> {
  const grow = async (kind: string, level: number): Promise<ExecutionId[]> => {
    const lease = await bench.claimOne(kind);
    const ids: ExecutionId[] = [];
    for (let n = 0; n < (widths[level] ?? 0); n += 1) {
      await bench.database.moveClock(2);
      const below = newKind();
      const [id] = await spawn(bench, lease, { kind: below, tags: { level: String(level) } });
      ids.push(id!, ...(await grow(below, level + 1)));
    }
    return ids;
  };
  const kind = newKind();
  const root = await bench.submit({ kind });
  return { root, ids: await grow(kind, 0) };
}

it('each is followed by what is below it, in the order they were spawned', async () => {
  const { root, ids } = await family([2, 3, 1]);
  expect(ids).toHaveLength(14);
  await expectList({ parentId: root, descendants: true }, ids);
  await expectList({ parentId: ids[0]!, descendants: true }, ids.slice(1, 7));
  await expectList({ parentId: root, descendants: false }, [ids[7]!, ids[0]!]);
  await expectList({ parentId: ids.at(-1)!, descendants: true }, []);
  await expectList({ parentId: misplaced(root), descendants: true }, []);
});

it('all other conditions apply to each of them', async () => {
  const { root, ids } = await family([1, 2, 2]);
  const filter = { parentId: root, descendants: true };
  await bench.engine.cancel(ids[2]!, WHY);
  await expectList({ ...filter, states: ['cancelled'] }, [ids[2]!]);
  await expectList({ ...filter, tags: { level: '1' } }, [ids[1]!, ids[4]!]);
  await expectList({ ...filter, tags: { level: '2' }, states: ['active'] }, [ids[3]!, ids[5]!, ids[6]!]);
  await expectList({ ...filter, namespace: newKind() }, []);
  const { createdAtMs } = await bench.snapshot(ids[4]!);
  await expectList({ ...filter, createdFromMs: createdAtMs }, ids.slice(4));
});

it('many that were spawned together are all found', async () => {
  const parent = await bench.running();
  const count = 2_500;
  await spawn(bench, parent, { kind: newKind() }, count);
  const filter = { parentId: parent.executionId, descendants: true };
  const found = new Set<string>();
  let cursor: string | null | undefined;
  while (cursor !== null) {
    const page = await list(filter, { limit: 1_000, ...(cursor === undefined ? {} : { cursor }) });
    for (const { executionId } of page.executions) found.add(executionId);
    cursor = page.cursor;
  }
  expect(found.size).toBe(count);
});

it('a family without its parent is refused', async () => {
  await expectRefused(bench.database, () => list({ descendants: true }), {
    code: 'invalid_input',
    field: 'filter.descendants',
    says: /parentId/,
  });
});
