/**
 * Writes events on demand: leases are held, and each renewal is one event, committed with the others of its call.
 * Everything here runs in a seat, on the Engine interface.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { connect } from '../../../dist/index.js';
import { workerPort } from '../../../dist/protocol/index.js';
import { hostNow } from './readers.mjs';

const KIND = 'bench';
const LEASE_MS = 3_600_000;
const CLAIM_MAX = 1_000;
const FILL_CALLERS = 4;

function inBatches(list, size) {
  const count = Math.ceil(list.length / size);
  return Array.from({ length: count }, (_, index) => list.slice(index * size, (index + 1) * size));
}

/** Opens a connection, submits and claims. The first execution is tagged as rare, the others as usual. */
export async function hold({ target, count }, seat) {
  const engine = await connect({ databaseUrl: target.url, reconcile: 'off', listen: 'off' });
  const tagsOf = (index) => ({ found: index === 0 ? 'rarely' : 'often' });
  await engine.executions.submit(
    Array.from({ length: count }, (_, index) => ({ kind: KIND, tags: tagsOf(index) })),
  );
  const held = [];
  while (held.length < count) {
    const request = { workerId: 'bench', workerInstanceId: `bench-${process.pid}`, kinds: [KIND] };
    const limit = Math.min(CLAIM_MAX, count - held.length);
    const { claims } = await workerPort(engine).claim({ ...request, limit, leaseMs: LEASE_MS });
    if (claims.length === 0) throw new Error(`${held.length} of ${count} executions could be claimed.`);
    held.push(...claims);
  }
  Object.assign(seat.kept, { engine, held });
}

async function renewAll(engine, leases) {
  const answers = await workerPort(engine).renew(leases, LEASE_MS);
  const refused = answers.find((answer) => answer.outcome !== 'renewed');
  if (refused !== undefined) throw new Error(`A renewal was answered ${refused.outcome}.`);
}

/**
 * Renews one batch after the other at a fixed pace, regardless of the responses. Returns, per call, which executions it
 * renewed, when it was sent and when it returned. A lease is never in two calls at once, so its renewals commit in the
 * order they are sent.
 */
export async function renewPaced({ batch, everyMs, calls }, seat) {
  const { engine, held } = seat.kept;
  const batches = inBatches(held, batch);
  const underWay = new Set();
  const failures = [];
  const renewOne = async (slot) => {
    const ids = batches[slot].map((lease) => lease.executionId);
    underWay.add(slot);
    const sentAt = hostNow();
    await renewAll(engine, batches[slot]).catch((error) => failures.push(error));
    const answeredAt = hostNow();
    underWay.delete(slot);
    return { ids, sentAt, answeredAt };
  };
  const pending = [];
  const startedAt = performance.now();
  for (let call = 0; call < calls && failures.length === 0; call += 1) {
    const wait = startedAt + call * everyMs - performance.now();
    if (wait > 0) await delay(wait);
    const slot = call % batches.length;
    if (underWay.has(slot)) throw new Error(`It cannot keep up with a call every ${everyMs} ms.`);
    pending.push(renewOne(slot));
  }
  const log = await Promise.all(pending);
  const ms = performance.now() - startedAt;
  await engine.close();
  if (failures.length > 0) throw failures[0];
  return { log, ms };
}

/** Renews all leases this many times over. */
export async function renewRounds({ rounds, batch }, seat) {
  const { engine, held } = seat.kept;
  for (let round = 0; round < rounds; round += 1) {
    const waiting = inBatches(held, batch);
    const caller = async () => {
      while (waiting.length > 0) await renewAll(engine, waiting.pop());
    };
    await Promise.all(Array.from({ length: FILL_CALLERS }, caller));
  }
  await engine.close();
}
