/**
 * Turns the database's refusals of changes to a flow into errors with a code and the names of the members concerned.
 */
import { EngineError, isEngineError, type ErrorCode } from '../../contract/errors.ts';
import { formatExecutionId } from '../../contract/ids.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { readNamesOf } from './reads.sql.ts';
import type { EngineContext } from '../kit/context.ts';

const REFUSED = 'FF008';

interface Refusal {
  code: ErrorCode;
  field: string;
  sentence(what: string): string;
}

/** By the word the SQL functions refuse with. */
const REFUSALS: Record<string, Refusal> = {
  not_found: { code: 'not_found', field: 'flowId', sentence: () => 'There is no such flow.' },
  wrong_partition: {
    code: 'invalid_id',
    field: 'request.flowId',
    sentence: () => 'request.flowId has the uuid of a flow in another partition.',
  },
  flow_ended: {
    code: 'flow_ended',
    field: 'flowId',
    sentence: () => 'The flow has finished or is being cancelled; it can no longer change.',
  },
  flow_sealed: {
    code: 'flow_sealed',
    field: 'flowId',
    sentence: () => 'The flow is sealed; only its running members can extend it.',
  },
  stale_revision: {
    code: 'stale_revision',
    field: 'options.expectedRevision',
    sentence: (what) => `The graph has changed: it is at revision ${what}.`,
  },
  not_a_member: {
    code: 'not_a_member',
    field: 'members',
    sentence: (what) => `${what} is not a member of this flow.`,
  },
  member_of_a_flow: {
    code: 'not_a_member',
    field: 'members',
    sentence: (what) => `${what} is already a member of a flow.`,
  },
  key_not_here: {
    code: 'key_not_here',
    field: 'members',
    sentence: (what) => `${what} has a key; a member of a flow cannot have one.`,
  },
  execution_not_found: {
    code: 'not_found',
    field: 'members',
    sentence: (what) => `There is no execution ${what} in the partition of the flow.`,
  },
  name_taken: {
    code: 'invalid_input',
    field: 'members',
    sentence: (what) => `The flow already has a member named ${what}.`,
  },
  no_room: {
    code: 'invalid_input',
    field: 'edges',
    sentence: (what) => `The payload of ${what} is not an object, so results cannot be put into it.`,
  },
  input_taken: {
    code: 'invalid_input',
    field: 'edges',
    sentence: (what) =>
      `Two edges pass a result to ${what} under the same key; set list: true on both to collect a list.`,
  },
  edge_exists: {
    code: 'invalid_input',
    field: 'edges',
    sentence: (what) => `There is already an edge from ${what} to the same member.`,
  },
  edge_not_found: {
    code: 'not_found',
    field: 'edgeIds',
    sentence: (what) => `The flow has no edge ${what}.`,
  },
  no_members: {
    code: 'invalid_input',
    field: 'flowId',
    sentence: () => 'The flow has no members; add some before sealing it.',
  },
  edges_staged: {
    code: 'invalid_input',
    field: 'flowId',
    sentence: (what) =>
      `The edge ${what} is staged but not applied; apply or unstage it before sealing the flow.`,
  },
  too_few_edges: {
    code: 'invalid_input',
    field: 'flowId',
    sentence: (what) => `The join of ${what} needs more edges than it has.`,
  },
  join_fixed: {
    code: 'join_fixed',
    field: 'policy',
    sentence: (what) => `The join of ${what} can no longer change, because edges lead to it.`,
  },
  already_started: {
    code: 'already_started',
    field: 'members',
    sentence: (what) =>
      `${what} has started, is delayed, or its join is decided; it cannot wait for anything more.`,
  },
  cycle: {
    code: 'cycle',
    field: 'members',
    sentence: (what) => `The edges form a cycle: ${what}.`,
  },
  lease_lost: {
    code: 'lease_lost',
    field: 'lease',
    sentence: () => 'The lease is gone: this worker no longer owns the execution.',
  },
};

/** Refusals whose detail is not about members. */
const AS_IT_IS = ['stale_revision', 'edge_not_found', 'edges_staged', 'name_taken'];

/** Runs a change of a flow; throws the database's refusals as EngineErrors. */
export async function sayingWhy<Value>(
  context: EngineContext,
  flow: ExecutionKey,
  change: () => Promise<Value>,
): Promise<Value> {
  try {
    return await change();
  } catch (error) {
    if (!isEngineError(error) || error.sqlState !== REFUSED) throw error;
    const { message, detail = '' } = error.cause as { message: string; detail?: string };
    const refusal = REFUSALS[message];
    if (refusal === undefined) throw error;
    const what = AS_IT_IS.includes(message) ? detail : await named(context, flow, detail);
    throw new EngineError(refusal.code, refusal.sentence(what), { field: refusal.field });
  }
}

/** Replaces uuids by the names of their members, where they have one. */
async function named(context: EngineContext, flow: ExecutionKey, detail: string): Promise<string> {
  const uuids = detail.split(' ').filter((word) => /^[0-9a-f-]{36}$/.test(word));
  if (uuids.length === 0) return detail;
  const names = await readNamesOf(context.database, uuids);
  const words = uuids.map((uuid) => names.get(uuid) ?? formatExecutionId(flow.partition, uuid));
  // Of a cycle only the edge that closes it is known.
  return words.length === 2 ? `${words[0]} → ${words[1]} → … → ${words[0]}` : words.join(' ');
}
