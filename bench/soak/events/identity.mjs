/**
 * The identity of an event as a number: the same for a row of the table and for what a subscriber received, so that
 * hundreds of thousands can be compared by position without being kept.
 */

/** Distinguishes the events of plain writers from those of the engine's workers. */
export const ENTITY_PREFIX = 'soak-entity-';
const UUID = /[0-9a-f-]{36}$/;
const SEEDS = [0xdeadbeef, 0x41c6ce57];
const FACTORS = [2654435761, 1597334677];
const LOW_BITS = 0x1fffff;
const TWO_TO_32 = 4_294_967_296;

/** 53 bits of a string. */
function digest(text) {
  let [a, b] = SEEDS;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    a = Math.imul(a ^ code, FACTORS[0]);
    b = Math.imul(b ^ code, FACTORS[1]);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return TWO_TO_32 * (LOW_BITS & b) + (a >>> 0);
}

/** For an event of a subscription. */
export function identityOf(event) {
  const id = UUID.exec(event.executionId ?? '')?.[0] ?? '';
  const worker =
    event.family === 'worker' ? [event.workerInstanceId, event.workerId, event.version ?? ''] : [];
  const lease = [event.attemptIndex ?? '', event.leaseEpoch ?? ''];
  return digest([event.family, event.type, id, ...lease, event.occurredAtMs, ...worker].join('|'));
}

/** For a row of the table. */
export function identityOfRow(row) {
  const worker = row.family === 'worker' ? [row.worker_instance_id, row.worker_id, row.version ?? ''] : [];
  const lease = [row.attempt_index ?? '', row.lease_epoch ?? ''];
  const id = row.execution_id ?? '';
  return digest([row.family, row.event_type, id, ...lease, row.occurred_at_ms, ...worker].join('|'));
}

/** The entity and its version, for an event of a plain writer; nothing for one of the engine. */
export function changeOf(workerId, version) {
  return workerId?.startsWith(ENTITY_PREFIX) ? { entity: workerId, version: Number(version) } : undefined;
}
