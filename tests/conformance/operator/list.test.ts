/**
 * Lists of executions without states, by tags and by parent, and how pages behave. Each test uses a namespace or tag of
 * its own.
 */
import { describe, expect, it } from 'vitest';
import type { ListPage } from '../../../src/contract/operations.ts';
import { LIMITS } from '../../../src/index.ts';
import { idsOf, sorted, useLists } from './listing.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const { list, expectList, expectSame, submitInTime, submitTogether } = useLists(bench);
const WHY = { reason: 'why' };

describe('without states', () => {
  it('all executions are listed newest first', async () => {
    const ids = await submitInTime([{}, {}, {}]);
    expect(idsOf((await bench.engine.executions.list({ limit: 3 })).executions)).toEqual(ids.toReversed());
    const times = (await bench.engine.executions.list()).executions.map(({ createdAtMs }) => createdAtMs);
    expect(times).toEqual(times.toSorted((one, other) => other - one));
  });

  it('those submitted together are listed once each', async () => {
    const namespace = newKind();
    const first = await submitTogether(7, { namespace });
    await bench.database.moveClock(1);
    const second = await submitTogether(6, { namespace });
    await expectSame({ namespace }, [...first, ...second]);
    expect(sorted(idsOf((await list({ namespace }, { limit: 6 })).executions))).toEqual(sorted(second));
  });

  it('a summary has the identity and the state of an execution', async () => {
    const [namespace, kind, lane] = [newKind(), newKind(), newKind()];
    const tags = { team: 'a' };
    const id = await bench.submit({ namespace, kind, lane, tags, priority: 7, delay: 60_000 });
    const { createdAtMs, eligibleAtMs } = await bench.snapshot(id);
    expect((await list({ namespace })).executions).toEqual([
      {
        executionId: id,
        state: 'delayed',
        kind,
        lane,
        namespace,
        priority: 7,
        tags,
        createdAtMs,
        changedAtMs: createdAtMs,
        eligibleAtMs,
        endedAtMs: null,
        attemptIndex: 0,
        leaseEpoch: 0,
        retryCount: 0,
        replayCount: 0,
        workerInstanceId: null,
        failure: null,
        parentId: null,
      },
    ]);
  });

  it('namespace, lane and kind each narrow the list', async () => {
    const [namespace, lane, kind] = [newKind(), newKind(), newKind()];
    const [plain, inLane, ofKind] = await submitInTime([
      { namespace },
      { namespace, lane },
      { namespace, kind },
    ]);
    await expectList({ namespace }, [ofKind!, inLane!, plain!]);
    await expectList({ lane }, [inLane!]);
    await expectList({ kind }, [ofKind!]);
    await expectList({ namespace, lane, kind }, []);
  });

  it('the time of submission narrows the list: from the first inclusive, to the second exclusive', async () => {
    const namespace = newKind();
    const ids = await submitInTime([{ namespace }, { namespace }, { namespace }]);
    const [, second, third] = await Promise.all(
      ids.map(async (id) => (await bench.snapshot(id)).createdAtMs),
    );
    await expectList({ namespace, createdFromMs: second! }, [ids[2]!, ids[1]!]);
    await expectList({ namespace, createdBeforeMs: third! }, [ids[1]!, ids[0]!]);
    await expectList({ createdFromMs: second!, createdBeforeMs: third! }, [ids[1]!]);
  });
});

describe('by tags', () => {
  it('executions are listed newest first, and must have every tag', async () => {
    const value = newKind();
    const ids = await submitInTime([
      { tags: { team: value } },
      { tags: { team: value, tier: 'gold' } },
      { tags: { team: 'other', tier: 'gold' } },
      { tags: { team: value, tier: '' } },
    ]);
    await expectList({ tags: { team: value } }, [ids[3]!, ids[1]!, ids[0]!]);
    await expectList({ tags: { team: value, tier: 'gold' } }, [ids[1]!]);
    await expectList({ tags: { tier: 'gold', team: value } }, [ids[1]!]);
    await expectList({ tags: { team: value, tier: '' } }, [ids[3]!]);
    await expectList({ tags: { team: 'nobody' } }, []);
    const { createdAtMs } = await bench.snapshot(ids[1]!);
    await expectList({ tags: { team: value }, createdFromMs: createdAtMs }, [ids[3]!, ids[1]!]);
    await expectList({ tags: { team: value }, createdBeforeMs: createdAtMs }, [ids[0]!]);
  });

  it('those submitted together are listed once each, and states narrow them', async () => {
    const tags = { team: newKind() };
    const ids = await submitTogether(8, { tags });
    await bench.engine.cancel(ids.slice(0, 3), WHY);
    await expectSame({ tags }, ids);
    await expectSame({ tags, states: ['cancelled'] }, ids.slice(0, 3));
    await expectSame({ tags, states: ['waiting', 'failed'] }, ids.slice(3));
    await expectSame({ tags, states: ['cancelled'], failure: { contains: 'hy' } }, ids.slice(0, 3));
    await expectSame({ tags, states: ['cancelled'], failure: { contains: 'HY' } }, []);
  });

  it('an execution is found by the tags it was given later, and no longer by those it lost', async () => {
    const [before, after] = [newKind(), newKind()];
    const id = await bench.submit({ tags: { team: before } });
    await bench.engine.executions.setTags(id, { set: { team: after } });
    await expectList({ tags: { team: before } }, []);
    await expectList({ tags: { team: after } }, [id]);
  });
});

describe('by parent', () => {
  it('only the children are listed, newest first', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const spawned = await bench.port.spawn(parent, [{ kind }, { kind }, { kind }, { kind }]);
    if (spawned.outcome !== 'spawned') throw new Error(`spawning answered ${spawned.outcome}`);
    const early = idsOf(spawned.children);
    await bench.database.moveClock(1);
    const late = await bench.port.spawn(parent, [{ kind: newKind() }]);
    if (late.outcome !== 'spawned') throw new Error(`spawning answered ${late.outcome}`);
    const [last] = idsOf(late.children);
    await expectSame({ parentId: parent.executionId }, [...early, last!]);
    const [newest] = (await list({ parentId: parent.executionId }, { limit: 1 })).executions;
    expect(newest).toMatchObject({ executionId: last, parentId: parent.executionId });
    await expectSame({ parentId: parent.executionId, kind }, early);
    await expectList({ parentId: misplaced(parent.executionId) }, []);
    await expectList({ parentId: last! }, []);
  });
});

describe('pages', () => {
  it('continue after the last one, whatever happened to what was listed', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const ids = await submitInTime(Array.from({ length: 6 }, () => ({ namespace, kind })));
    const filter = { namespace, states: ['waiting'] } as const;
    const first = await list(filter, { limit: 2 });
    expect(idsOf(first.executions)).toEqual(ids.slice(0, 2));
    await bench.engine.cancel([ids[0]!, ids[3]!], WHY);
    await bench.submit({ namespace, kind, priority: 9 });
    const second = await list(filter, { limit: 2, cursor: first.cursor! });
    expect(idsOf(second.executions)).toEqual([ids[2], ids[4]]);
    const third = await list(filter, { limit: 2, cursor: second.cursor! });
    expect(third).toMatchObject({ executions: [{ executionId: ids[5] }], cursor: null });
  });

  it('are not shifted by executions submitted meanwhile', async () => {
    const namespace = newKind();
    const ids = await submitInTime(Array.from({ length: 4 }, () => ({ namespace })));
    const first = await list({ namespace }, { limit: 2 });
    await submitInTime([{ namespace }, { namespace }]);
    const second = await list({ namespace }, { limit: 2, cursor: first.cursor! });
    expect(idsOf([...first.executions, ...second.executions])).toEqual(ids.toReversed());
  });

  it('of a filter that matches almost nothing may be empty, and the list still finishes', async () => {
    const team = newKind();
    const id = await bench.submit({ tags: { team } });
    // Dangling entries, all newer: more than one page examines.
    await bench.database.query(
      `INSERT INTO ff_tag SELECT 'team', $1, 9000000000000 + n, gen_random_uuid(), 0 FROM generate_series(1, $2::integer) n`,
      [team, 2 * LIMITS.listExamined + 1],
    );
    const pages: ListPage[] = [];
    let cursor: string | null | undefined;
    while (cursor !== null) {
      pages.push(await list({ tags: { team } }, { limit: 10, ...(cursor === undefined ? {} : { cursor }) }));
      cursor = pages.at(-1)!.cursor;
    }
    expect(pages.map(({ executions }) => executions.length)).toEqual([0, 0, 1]);
    expect(idsOf(pages[2]!.executions)).toEqual([id]);
  });
});
