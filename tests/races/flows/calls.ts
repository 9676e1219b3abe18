/**
 * The functions of flows as calls a race can make on any connection. A function can be replaced by name, so that the
 * same race runs on a variant of it. No race and no expectation belongs here.
 */
import { randomUUID } from 'node:crypto';
import { INTERNED, type Call, type Lease } from '../calls.ts';

/** Every execution of a race is in this partition, as in calls.ts. */
export const PARTITION = 7;

export interface FlowFunctionNames {
  siblings?: string;
}

export interface FlowCalls {
  /** Resolves remaining edges: of this many members, into this many executions. */
  tell(ends?: number, edges?: number): Call;
  /** Stops the losers of one join. */
  siblings(flow: string, downstream: string, limit?: number): Call;
  reconcile(): Call;
  cancelFlow(flow: string, policy: 'cancel_all' | 'cancel_pending' | 'let_finish'): Call;
  cancelMembers(flow: string, limit?: number): Call;
  /** Adds an existing execution. */
  adopt(flow: string, id: string, name: string): Call;
  apply(flow: string, edgeIds: readonly string[]): Call;
  seal(flow: string): Call;
  /** Adds one member after an existing one, on behalf of a running member. */
  extend(flow: string, lease: Lease, growth: { id: string; name: string; after: string }): Call;
}

const only = (expression: string): string => `SELECT NULL::uuid AS execution_id, ${expression} AS outcome`;

export function flowCallsOf(names: FlowFunctionNames = {}): FlowCalls {
  return {
    tell: (ends = 100, edges = 500) => ({
      sql: 'SELECT * FROM ff_tell_ends($1, $2)',
      params: [ends, edges],
    }),
    siblings: (flow, downstream, limit = 500) => ({
      sql: `SELECT * FROM ${names.siblings ?? 'ff_cancel_siblings'}(${PARTITION}::smallint, $1, $2, $3)`,
      params: [flow, downstream, limit],
    }),
    reconcile: () => ({ sql: `${only(`outcome`)} FROM ff_reconcile_siblings(50)`, params: [] }),
    cancelFlow: (flow, policy) => ({
      sql: `${only(`outcome`)} FROM ff_cancel_flow($1, ${PARTITION}::smallint, $2, 'why', 'somebody')`,
      params: [flow, policy],
    }),
    cancelMembers: (flow, limit = 500) => ({
      sql: 'SELECT * FROM ff_cancel_members($1, $2)',
      params: [flow, limit],
    }),
    adopt: (flow, id, name) => ({
      sql: only(`ff_adopt_members($1, ${PARTITION}::smallint, NULL, ARRAY[$2::uuid], ARRAY[$3])::text`),
      params: [flow, id, name],
    }),
    apply: (flow, edgeIds) => ({
      sql: only(`ff_apply_edges($1, ${PARTITION}::smallint, $2::uuid[])::text`),
      params: [flow, edgeIds],
    }),
    seal: (flow) => ({ sql: `SELECT * FROM ff_seal_flow($1, ${PARTITION}::smallint, NULL)`, params: [flow] }),
    extend: (flow, lease, growth) => ({
      sql: `SELECT * FROM ff_grow_flow($1, ${PARTITION}::smallint, NULL, $2, $3, $4, ${INTERNED('$5')}, $6::text::jsonb,
        ARRAY[$7::uuid], '{${PARTITION}}', '{1}', '{0}', ARRAY['{}'::jsonb], ARRAY[$8::text], '{all}', '{0}', '{f}',
        ARRAY[$9::uuid], ARRAY[$10::uuid], ARRAY[$7::uuid], '{success}', '{NULL}', '{NULL}')`,
      params: [
        flow,
        lease.id,
        lease.attempt,
        lease.epoch,
        JSON.stringify([{ lane: 'default', kind: randomUUID(), capabilities: [] }]),
        JSON.stringify([{ route: 1, namespace: 'default', priority: 100, policy: {}, tags: {} }]),
        growth.id,
        growth.name,
        randomUUID(),
        growth.after,
      ],
    }),
  };
}
