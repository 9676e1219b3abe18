/**
 * Writers that stay open: one that commits long after events with higher ids were read, and one that prepares its
 * transactions and settles them later, even after a crash. Each has its own entity, so that it blocks nobody.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { beginOn, below, commit, HOT_ENTITIES } from './transaction.mjs';
import { isGone, Session } from './session.mjs';

const LATE_STATEMENTS = 5;
const LATE_EVENTS = 50;
const PREPARED_EVENTS = 20;
const PREPARED_HOLD_MS = 1_500;
const ROLLED_BACK_SHARE = 0.2;

/** Writes now and then for this long, then commits. Returns whether it could. */
export async function writeLate(url, ledger, { name, entity, holdMs }) {
  const session = new Session(url, 'soak-late');
  const startedAt = performance.now();
  try {
    const open = await beginOn(session, HOT_ENTITIES + entity, name, LATE_STATEMENTS * LATE_EVENTS);
    for (let index = 0; index < LATE_STATEMENTS; index += 1) {
      await open.write(LATE_EVENTS);
      await delay(holdMs / LATE_STATEMENTS);
    }
    await commit(session, ledger, name, open.used);
    ledger.noteLength(performance.now() - startedAt);
    return ledger.committed.has(name);
  } catch (error) {
    ledger.aborted.add(name);
    if (!isGone(error)) throw error;
    return false;
  } finally {
    await session.close();
  }
}

/** Prepares one transaction after another and settles each a while later. */
export async function writePrepared(url, ledger, { entity, stop }) {
  const session = new Session(url, 'soak-prepared');
  let count = 0;
  while (!stop.aborted) {
    count += 1;
    const startedAt = performance.now();
    await prepareOne(session, ledger, `prepared-${entity}-${count}`, HOT_ENTITIES + entity);
    ledger.noteLength(performance.now() - startedAt);
  }
  await session.close();
}

async function prepareOne(session, ledger, tx, entity) {
  const verb = Math.random() < ROLLED_BACK_SHARE ? 'ROLLBACK' : 'COMMIT';
  const count = 1 + below(PREPARED_EVENTS);
  let mayBePrepared = false;
  try {
    const open = await beginOn(session, entity, tx, count);
    await open.write(count);
    mayBePrepared = true;
    await session.query(`PREPARE TRANSACTION '${tx}'`);
  } catch (error) {
    if (!isGone(error)) throw error;
    if (!mayBePrepared || !(await isPrepared(session, tx))) {
      ledger.aborted.add(tx);
      return;
    }
  }
  await delay(below(PREPARED_HOLD_MS));
  await settle(session, tx, verb);
  if (verb === 'COMMIT') ledger.committed.set(tx, count);
  else ledger.aborted.add(tx);
}

async function isPrepared(session, tx) {
  return insist(
    async () => (await session.rows('SELECT 1 FROM pg_prepared_xacts WHERE gid = $1', [tx])).length > 0,
  );
}

/** A prepared transaction stays until it is settled; when it is gone, the try whose response was lost settled it. */
async function settle(session, tx, verb) {
  await insist(async () => {
    if (await isPrepared(session, tx)) await session.query(`${verb} PREPARED '${tx}'`);
  });
}

/** Retries as long as only the connection is lost; a session limits how long it waits for the server. */
async function insist(work) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isGone(error)) throw error;
    }
  }
}
