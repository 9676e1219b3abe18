/**
 * Decodes a row of the event log into the event that subscribers receive. A row of an unknown type, or without what its
 * family requires, is an error with its position: it is neither skipped nor completed by guessing.
 */
import { leaseIdOf } from '../../model/lease-id.ts';
import { encodeCursor } from '../../contract/cursor.ts';
import {
  COMPLETION_EVENTS,
  WORKER_EVENTS,
  type CompletionEvent,
  type CarriedEnd,
  type EventBase,
  type ExecutionEvent,
  type ExecutionEventBase,
  type FeedEvent,
  type FlowEvent,
  type LeaseHistoryEvent,
  type OperatorEvent,
  type SignalEvent,
  type TagEvent,
  type WorkerEvent,
} from '../../contract/events.ts';
import { CANCEL_FLOW_POLICIES } from '../../contract/flows.ts';
import { formatExecutionId } from '../../contract/ids.ts';
import type { Json } from '../../contract/json.ts';
import { SIGNAL_EFFECTS } from '../../contract/signals.ts';
import type { StoredEvent } from './events.sql.ts';
import {
  big,
  malformed,
  numberOrNull,
  text,
  textList,
  textOrNull,
  texts,
  undecodable,
  unknownType,
  whole,
  wholeOrNull,
  word,
} from './stored-values.ts';

/** Decodes a row. The event is frozen, because several readers may share it. */
export function decodeEvent(row: StoredEvent): FeedEvent {
  const event = toEvent(row);
  Object.freeze(row.tags);
  if (event.family === 'tag') Object.freeze(event.set);
  return Object.freeze(event);
}

function toEvent(row: StoredEvent): FeedEvent {
  switch (row.family) {
    case 'lease':
      return leaseEvent(row);
    case 'completion':
      return completionEvent(row);
    case 'signal':
      return signalEvent(row);
    case 'operator':
      return operatorEvent(row);
    case 'flow':
      return flowEvent(row);
    case 'tag':
      return tagEvent(row);
    case 'worker':
      return workerEvent(row);
    case 'execution':
      return executionEvent(row);
    default:
      throw undecodable(row, 'this version does not know its family');
  }
}

function leaseEvent(row: StoredEvent): LeaseHistoryEvent {
  const type = row.type;
  const base = Object.assign(ofExecution(row), {
    family: 'lease' as const,
    leaseId: leaseIdOf(text(row, row.uuid, 'execution_id'), whole(row, row.leaseEpoch, 'lease_epoch')),
  });
  switch (type) {
    case 'acquired':
    case 'renewed':
      return Object.assign(base, {
        type,
        workerInstanceId: text(row, row.workerInstanceId, 'worker_instance_id'),
      });
    case 'reclaimed':
      return Object.assign(base, {
        type,
        previousOwner: textOrNull(row, row.detail?.['previous_owner'], 'previous_owner'),
        newOwner: text(row, row.detail?.['new_owner'], 'new_owner'),
      });
    case 'expired':
    case 'released':
      return Object.assign(base, endOfLease(row), { type });
    case 'revoked':
      return Object.assign(base, endOfLease(row), {
        type,
        revokedBy: textOrNull(row, row.detail?.['revoked_by'], 'revoked_by'),
      });
    default:
      throw unknownType(row);
  }
}

function endOfLease(row: StoredEvent): { previousOwner: string; transition: string } {
  return {
    previousOwner: text(row, row.detail?.['previous_owner'], 'previous_owner'),
    transition: text(row, row.detail?.['transition'], 'transition'),
  };
}

function completionEvent(row: StoredEvent): CompletionEvent {
  const type = COMPLETION_EVENTS.find((known) => known === row.type);
  if (type === undefined) throw unknownType(row);
  return Object.assign(ofExecution(row), {
    family: 'completion' as const,
    type,
    // Its lease, if a worker had one.
    leaseId: row.workerInstanceId === null ? null : leaseIdOf(row.uuid!, row.leaseEpoch!),
    workerInstanceId: textOrNull(row, row.workerInstanceId, 'worker_instance_id'),
    end: carriedEnd(row, type),
    unreadMessages: wholeOrNull(row, row.detail?.[UNREAD], UNREAD) ?? 0,
  });
}

/** What a completion of any execution may carry, also where nobody asked for all events. */
const UNREAD = 'unread_messages';

function carriedEnd(row: StoredEvent, type: CompletionEvent['type']): Readonly<CarriedEnd> | null {
  const end = row.detail?.['end'];
  if (end === undefined) return null;
  if (typeof end !== 'object' || end === null) throw malformed(row, 'end');
  const { message, category, omitted, ...carried } = end as Record<string, unknown>;
  if (type !== 'success')
    return Object.freeze({
      message: textOrNull(row, message, 'message'),
      category: textOrNull(row, category, 'category'),
    });
  if ('result' in carried) return Object.freeze({ result: carried['result'] as Json });
  return Object.freeze({ omitted: word(row, omitted, 'omitted', ['too_large', 'redacted']) });
}

function executionEvent(row: StoredEvent): ExecutionEvent {
  const { type, detail } = row;
  const base = Object.assign(ofExecution(row), { family: 'execution' as const });
  switch (type) {
    case 'submitted': {
      const parent = textOrNull(row, detail?.['parent'], 'parent');
      return Object.assign(base, {
        type,
        priority: whole(row, detail?.['priority'], 'priority'),
        parentId: parent === null ? null : formatExecutionId(row.partition!, parent),
        eligibleAtMs: wholeOrNull(row, detail?.['eligible_at_ms'], 'eligible_at_ms'),
      });
    }
    case 'step_finished':
      return Object.assign(base, underLease(row), {
        type,
        name: text(row, detail?.['name'], 'name'),
        key: text(row, detail?.['key'], 'key'),
        durationMs: wholeOrNull(row, detail?.['duration_ms'], 'duration_ms'),
      });
    case 'progress_reported':
      return Object.assign(base, underLease(row), {
        type,
        percent: numberOrNull(row, detail?.['percent'], 'percent'),
        message: textOrNull(row, detail?.['message'], 'message'),
      });
    default:
      throw unknownType(row);
  }
}

function underLease(row: StoredEvent): { leaseId: string; workerInstanceId: string } {
  return {
    leaseId: leaseIdOf(text(row, row.uuid, 'execution_id'), whole(row, row.leaseEpoch, 'lease_epoch')),
    workerInstanceId: text(row, row.workerInstanceId, 'worker_instance_id'),
  };
}

function signalEvent(row: StoredEvent): SignalEvent {
  const { type, detail } = row;
  const base = Object.assign(ofExecution(row), { family: 'signal' as const });
  switch (type) {
    case 'suspended':
      return Object.assign(base, {
        type,
        waits: textList(row, detail?.['waits'], 'waits'),
        timeoutAtMs: wholeOrNull(row, detail?.['timeout_at_ms'], 'timeout_at_ms'),
      });
    case 'delivered':
      return Object.assign(base, {
        type,
        waitpoint: text(row, detail?.['waitpoint'], 'waitpoint'),
        signalId: text(row, detail?.['signal_id'], 'signal_id'),
        name: text(row, detail?.['name'], 'name'),
        source: Object.freeze({
          type: text(row, detail?.['source_type'], 'source_type'),
          identity: text(row, detail?.['source_identity'], 'source_identity'),
        }),
        effect: word(row, detail?.['effect'], 'effect', SIGNAL_EFFECTS),
      });
    case 'resumed':
      return Object.assign(base, {
        type,
        wait: textOrNull(row, detail?.['wait'], 'wait'),
        key: textOrNull(row, detail?.['key'], 'key'),
        outcome: word(row, detail?.['outcome'], 'outcome', ['satisfied', 'timed_out', 'woken']),
        by: textOrNull(row, detail?.['by'], 'by'),
      });
    case 'continued':
      return Object.assign(base, { type, run: big(row, detail?.['run'], 'run') });
    case 'escalated':
      return Object.assign(base, { type, wait: text(row, detail?.['wait'], 'wait') });
    case 'timed_out':
      return Object.assign(base, {
        type,
        wait: text(row, detail?.['wait'], 'wait'),
        onTimeout: word(row, detail?.['on_timeout'], 'on_timeout', ['fail', 'cancel', 'expire']),
      });
    case 'waitpoints_expired':
      return Object.assign(base, { type, waitpoints: textList(row, detail?.['waitpoints'], 'waitpoints') });
    default:
      throw unknownType(row);
  }
}

function operatorEvent(row: StoredEvent): OperatorEvent {
  const { type, detail } = row;
  const by = textOrNull(row, detail?.['by'], 'by');
  switch (type) {
    case 'priority_changed':
      return Object.assign(ofExecution(row), {
        family: 'operator' as const,
        type,
        by,
        oldPriority: whole(row, detail?.['old_priority'], 'old_priority'),
        newPriority: whole(row, detail?.['new_priority'], 'new_priority'),
      });
    case 'replayed':
      return Object.assign(ofExecution(row), {
        family: 'operator' as const,
        type,
        by,
        reason: textOrNull(row, detail?.['reason'], 'reason'),
        replayCount: whole(row, detail?.['replay_count'], 'replay_count'),
        from: word(row, detail?.['from'], 'from', ['start', 'failed_step', 'step']),
        previousOutcome: word(row, detail?.['previous_outcome'], 'previous_outcome', COMPLETION_EVENTS),
      });
    case 'lane_paused': {
      const reason = textOrNull(row, detail?.['reason'], 'reason');
      return Object.assign(ofAll(row), {
        family: 'operator' as const,
        type,
        lane: text(row, detail?.['lane'], 'lane'),
        by,
        reason,
      });
    }
    case 'lane_resumed':
      return Object.assign(ofAll(row), {
        family: 'operator' as const,
        type,
        lane: text(row, detail?.['lane'], 'lane'),
      });
    default:
      throw unknownType(row);
  }
}

function flowEvent(row: StoredEvent): FlowEvent {
  const { type, detail } = row;
  const partition = whole(row, row.partition, 'partition_key');
  const base = Object.assign(ofAll(row), {
    family: 'flow' as const,
    flowId: formatExecutionId(partition, text(row, row.flowUuid, 'flow_id')),
    namespace: text(row, row.namespace, 'namespace'),
    tags: texts(row, row.tags, 'tags'),
  });
  switch (type) {
    case 'submitted':
      return Object.assign(base, { type, name: text(row, detail?.['name'], 'name') });
    case 'cancel_requested':
      return Object.assign(base, {
        type,
        by: text(row, detail?.['by'], 'by'),
        reason: text(row, detail?.['reason'], 'reason'),
        policy: word(row, detail?.['policy'], 'policy', CANCEL_FLOW_POLICIES),
      });
    case 'completed':
    case 'failed':
    case 'cancelled':
    case 'reopened':
      return Object.assign(base, { type });
    default:
      throw unknownType(row);
  }
}

function tagEvent(row: StoredEvent): TagEvent {
  if (row.type !== 'tags_changed') throw unknownType(row);
  const removed = textList(row, row.detail?.['removed'], 'removed');
  return Object.assign(ofExecution(row), {
    family: 'tag' as const,
    type: 'tags_changed' as const,
    by: textOrNull(row, row.detail?.['by'], 'by'),
    set: texts(row, row.detail?.['set'], 'set'),
    removed,
  });
}

function workerEvent(row: StoredEvent): WorkerEvent {
  const type = WORKER_EVENTS.find((known) => known === row.type);
  if (type === undefined) throw unknownType(row);
  return Object.assign(ofAll(row), {
    family: 'worker' as const,
    type,
    workerInstanceId: text(row, row.workerInstanceId, 'worker_instance_id'),
    workerId: text(row, row.detail?.['worker_id'], 'worker_id'),
    version: textOrNull(row, row.detail?.['version'], 'version'),
  });
}

function ofAll(row: StoredEvent): EventBase {
  const { position } = row;
  return {
    cursor: encodeCursor(position),
    position,
    occurredAtMs: whole(row, row.occurredAtMs, 'occurred_at_ms'),
  };
}

function ofExecution(row: StoredEvent): ExecutionEventBase {
  const partition = whole(row, row.partition, 'partition_key');
  const flow = textOrNull(row, row.flowUuid, 'flow_id');
  const { position } = row;
  return {
    cursor: encodeCursor(position),
    position,
    occurredAtMs: whole(row, row.occurredAtMs, 'occurred_at_ms'),
    executionId: formatExecutionId(partition, text(row, row.uuid, 'execution_id')),
    flowId: flow === null ? null : formatExecutionId(partition, flow),
    namespace: text(row, row.namespace, 'namespace'),
    kind: text(row, row.kind, 'kind'),
    lane: text(row, row.lane, 'lane'),
    tags: texts(row, row.tags, 'tags'),
    attemptIndex: whole(row, row.attemptIndex, 'attempt_index'),
    leaseEpoch: whole(row, row.leaseEpoch, 'lease_epoch'),
  };
}
