/**
 * The switches of a lane, set by SQL: a paused lane gives out no work, a resumed one does.
 */
import { expect, it } from 'vitest';
import { claimRequest, newKind, useBench } from '../conformance/open.ts';

const bench = useBench();

it('a paused lane keeps its work until it is resumed', async () => {
  const kind = newKind();
  const lane = `lane-of-${kind}`;
  await bench.engine.submit({ kind, lane });
  const pause = (paused: boolean) =>
    bench.database.query('UPDATE ff_lane SET paused = $2 WHERE lane = $1', [lane, paused]);
  await pause(true);
  const before = await bench.another();
  expect((await before.claim({ ...claimRequest(), kinds: [kind] })).claims).toEqual([]);
  await pause(false);
  const after = await bench.another();
  expect((await after.claim({ ...claimRequest(), kinds: [kind] })).claims).toHaveLength(1);
});
