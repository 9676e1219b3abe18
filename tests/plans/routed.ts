/**
 * Routes are interned, used and forgotten, so that each of their functions runs every statement it has.
 */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Database } from '../../src/engine/database/database.ts';
import { submitEach } from '../../src/engine/executions/submitting/submits.sql.ts';
import {
  forgetNames,
  forgetRoutes,
  internRoutes,
  listIdleRoutes,
  readUsedRoutes,
} from '../../src/engine/executions/claiming/routes.sql.ts';
import { makeKnown, submitCall } from './workload.ts';

const FOR_EVER_MS = 1_000_000_000_000;

export async function walkRouted(database: Database, client: pg.Client): Promise<void> {
  const lane = `lane-${randomUUID().slice(0, 8)}`;
  const call = submitCall({ kinds: [lane], count: 2, keys: lane });
  call.routes[0]!.lane = lane;
  await submitEach(database, call, 5);
  await submitEach(database, await makeKnown(database, call), 5);
  const over = () => client.query('UPDATE ff_route SET usable_until_ms = 0 WHERE lane = $1', [lane]);
  await over();
  await internRoutes(database, call.routes);
  const [used] = await internRoutes(database, [{ ...call.routes[0]!, kind: `${lane}-used` }]);
  await over();
  const idle = await listIdleRoutes(database, 0, 0);
  await readUsedRoutes(database, -1, FOR_EVER_MS * 10, 10);
  await forgetRoutes(database, idle.routes, [used!.interned.routeId], 0);
  await forgetNames(database, -FOR_EVER_MS, 10);
}
