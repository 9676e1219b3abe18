/**
 * The number of routes is limited: beyond it new combinations of lane, kind and capabilities are refused, and the
 * existing ones keep working.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { plainDatabase } from '../../setup/database.ts';
import { useBench } from '../../conformance/open.ts';
import { rowCounts } from '../refused.ts';

const bench = useBench(plainDatabase);
const MAX_ROUTES = 10_000;

beforeAll(async () => {
  await bench.engine.executions.submit({ kind: 'known' });
  await bench.database.query(
    `INSERT INTO ff_route (lane, kind, capabilities) SELECT 'default', 'filler-' || n, '{}' FROM generate_series(1, $1) n`,
    [MAX_ROUTES - 2],
  );
});

describe('at the limit of routes', () => {
  it('a call that would exceed it is refused as a whole', async () => {
    const before = await rowCounts(bench.database);
    const requests = ['known', 'new-1', 'new-2'].map((kind) => ({ kind }));
    await expect(bench.engine.executions.submit(requests)).rejects.toMatchObject({
      code: 'route_limit_reached',
      message: expect.stringMatching(/\.$/),
    });
    expect(await rowCounts(bench.database)).toEqual(before);
  });

  it('the last one is accepted, and known ones still are after it', async () => {
    await bench.engine.executions.submit({ kind: 'the-last' });
    await expect(bench.engine.executions.submit({ kind: 'one-too-many' })).rejects.toMatchObject({
      code: 'route_limit_reached',
    });
    await bench.engine.executions.submit([{ kind: 'known' }, { kind: 'the-last' }]);
    expect(await bench.claim({ kinds: ['known', 'the-last'] })).toHaveLength(4);
  });
});
