/**
 * The established read surface of flows: queries that are known to be run on ff_pending_cancel_groups and ff_edge_group
 * by whoever stops the losers of a join, and on ff_flow_core; before, during and after.
 */
import { expect, it } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { dispatchSiblings } from '../../../src/engine/flows/work.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { submitFlow } from '../../conformance/flows/kit.ts';
import { useBench } from '../../conformance/open.ts';

const bench = useBench();

const PENDING = `
  SELECT partition_key, flow_id, downstream_eid FROM ff_pending_cancel_groups ORDER BY enqueued_at_ms LIMIT $1`;
const GROUP = `
  SELECT cancel_siblings_pending_flag, cancel_siblings_pending_members FROM ff_edge_group
  WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3`;
const EXISTS = `
  SELECT true FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3`;
const LOSER = `
  SELECT lifecycle_phase, ownership_state, eligibility_state, public_state, cancellation_reason, cancelled_by,
         terminal_at_ms IS NOT NULL AS ended
  FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2`;
const FLOW = `
  SELECT public_flow_state, graph_revision, terminal_at_ms IS NOT NULL AS ended, raw_fields->>'flow_kind' AS kind,
         raw_fields->>'namespace' AS namespace, raw_fields->>'node_count' AS nodes, raw_fields->>'edge_count' AS edges
  FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2`;

it('losers are listed until they are stopped, and stopped as cancelled by the engine', async () => {
  // Alone: nothing else may stop them during the test.
  const { engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
  const flow = await submitFlow(bench, [
    { name: 'x' },
    { name: 'y' },
    { name: 'best', after: ['x', 'y'], join: { kind: 'any' } },
  ]);
  const { partition, uuid } = parseExecutionId(flow.flowId);
  const uuidOf = (name: string) => parseExecutionId(flow.members[name]!).uuid;
  const core = async () => (await bench.database.query(FLOW, [partition, uuid])).rows[0];
  expect(await core()).toEqual({
    public_flow_state: 'running',
    graph_revision: 1,
    ended: false,
    kind: 'flow',
    namespace: 'default',
    nodes: '3',
    edges: '2',
  });
  const x = await flow.claim('x');
  // As its transaction leaves it, without what the process does next.
  await bench.database.query('SELECT * FROM ff_complete($1, $2, $3, $4, $5)', [
    [uuidOf('x')],
    [partition],
    [x.attemptIndex],
    [x.leaseEpoch],
    ['1'],
  ]);
  const key = [partition, uuid, uuidOf('best')];
  expect((await bench.database.query(PENDING, [50])).rows).toEqual([
    { partition_key: partition, flow_id: uuid, downstream_eid: uuidOf('best') },
  ]);
  expect((await bench.database.query(GROUP, key)).rows).toEqual([
    { cancel_siblings_pending_flag: true, cancel_siblings_pending_members: [uuidOf('y')] },
  ]);
  expect(await dispatchSiblings(context)).toMatchObject({ dispatched: 1 });
  expect((await bench.database.query(PENDING, [50])).rows).toEqual([]);
  expect((await bench.database.query(GROUP, key)).rows).toEqual([
    { cancel_siblings_pending_flag: false, cancel_siblings_pending_members: [] },
  ]);
  expect((await bench.database.query(EXISTS, key)).rows).toHaveLength(1);
  expect((await bench.database.query(LOSER, [partition, uuidOf('y')])).rows).toEqual([
    {
      lifecycle_phase: 'terminal',
      ownership_state: 'unowned',
      eligibility_state: 'not_applicable',
      public_state: 'cancelled',
      cancellation_reason: 'sibling_quorum_satisfied',
      cancelled_by: 'engine',
      ended: true,
    },
  ]);
  await flow.complete('best');
  expect(await core()).toMatchObject({ public_flow_state: 'completed', ended: true });
  await engine.close();
});
