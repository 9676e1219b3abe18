/**
 * The switches of a lane, set by SQL: a paused lane grants no work, a resumed one does. And what happens with very many
 * lanes.
 */
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../../src/index.ts';
import { claimRequest, newKind, useBench } from '../../conformance/open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();

it('a paused lane keeps its work until it is resumed', async () => {
  const kind = newKind();
  const lane = `lane-of-${kind}`;
  await bench.engine.executions.submit({ kind, lane });
  const pause = (paused: boolean) =>
    bench.database.query('UPDATE ff_lane SET paused = $2 WHERE lane = $1', [lane, paused]);
  await pause(true);
  const before = await bench.another();
  expect((await workerPort(before).claim({ ...claimRequest(), kinds: [kind] })).claims).toEqual([]);
  await pause(false);
  const after = await bench.another();
  expect((await workerPort(after).claim({ ...claimRequest(), kinds: [kind] })).claims).toHaveLength(1);
});

describe('with many lanes', () => {
  /** Fills up to this many lanes in all, sorted after the existing ones. */
  const fill = (count: number) =>
    bench.database.query(
      `INSERT INTO ff_lane (lane)
       SELECT 'z' || n FROM generate_series(1, $1::integer - (SELECT count(*) FROM ff_lane)::integer) n`,
      [count],
    );

  it('a page counts less deep in each, and reports that', async () => {
    const lane = 'deep';
    await bench.engine.executions.submit(Array.from({ length: 101 }, () => ({ kind: newKind(), lane })));
    await fill(LIMITS.listPage);
    const find = async (limit: number) =>
      (await bench.engine.lanes.list({ limit })).lanes.find((one) => one.lane === lane);
    expect(await find(100)).toMatchObject({ depth: 101, depthIsCapped: false });
    const seen = await find(LIMITS.listPage);
    expect(seen).toMatchObject({ depth: 100, depthIsCapped: true, oldestAgeMs: expect.any(Number) });
  });

  it('one more can be paused only if it is known, up to the limit of lanes', async () => {
    await bench.engine.executions.submit({ kind: newKind(), lane: 'known' });
    await bench.database.query(`DELETE FROM ff_lane WHERE lane LIKE 'z%'`);
    await fill(LIMITS.lanes - 1);
    expect(await bench.engine.lanes.pause('last')).toMatchObject({ isNew: true });
    const refused = { code: 'too_many', field: 'lane' };
    await expect(bench.engine.lanes.pause('one too many')).rejects.toMatchObject(refused);
    const { rows } = await bench.database.query(`SELECT 1 FROM ff_lane WHERE lane = 'one too many'`);
    expect(rows).toEqual([]);
    expect(await bench.engine.lanes.pause('last')).toMatchObject({ repeated: true, isNew: false });
    expect(await bench.engine.lanes.pause('known')).toMatchObject({ repeated: false, isNew: false });
    // Submits are never refused for it: routes have a limit of their own.
    await bench.engine.executions.submit({ kind: newKind(), lane: 'one too many' });
    expect(await bench.engine.lanes.pause('one too many')).toMatchObject({ repeated: false, isNew: false });
  });
});
