/**
 * One transaction of a writer: it locks an entity and writes events for it, as every transition of the engine does.
 * Events carry the entity's version, which shows whether readers got them in the order they happened.
 */
import { ENTITY_PREFIX } from './identity.mjs';
import { isGone } from './session.mjs';

const MAX_EVENTS = 50;
const MAX_STATEMENTS = 3;
const SAVEPOINT_SHARE = 0.05;
const ABORT_SHARE = 0.05;

/** Entities below this are contended; those above belong to one writer each, which may hold them for long. */
export const HOT_ENTITIES = 100;
export const OWN_ENTITIES = 32;

export const PREPARE = `
  CREATE TABLE soak_entity (id integer PRIMARY KEY, version bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
  INSERT INTO soak_entity (id) SELECT generate_series(0, ${HOT_ENTITIES + OWN_ENTITIES - 1})`;

const LOCK = 'UPDATE soak_entity SET version = version + $2 WHERE id = $1 RETURNING version - $2 AS version';
// Through the engine's own function for events that belong to no execution, because nothing else may write to the log.
// The worker's instance names the transaction, its id the entity.
const WRITE = `
  SELECT ff_tell('worker', array_agg('registered'::text), array_agg($2::text || ':' || i ORDER BY i),
                 array_agg(jsonb_build_object('worker_id', '${ENTITY_PREFIX}' || $1::integer,
                                              'version', ($3::bigint + i)::text) ORDER BY i))
  FROM generate_series($4::integer, $5::integer) i`;

export function below(n) {
  return Math.floor(Math.random() * n);
}

/** Locks the entity with room for this many versions, and returns how to write the next ones. */
export async function beginOn(session, entity, tx, room) {
  await session.query('BEGIN');
  const [{ version }] = await session.rows(LOCK, [entity, room]);
  let used = 0;
  return {
    async write(count) {
      await session.query(WRITE, [entity, tx, version, used + 1, used + count]);
      used += count;
    },
    get used() {
      return used;
    },
  };
}

/** Writes under a savepoint, and either keeps it or not; returns how many events are kept. */
async function writeUnderSavepoint(session, open, count) {
  await session.query('SAVEPOINT a');
  await open.write(count);
  if (Math.random() < 0.5) {
    await session.query('ROLLBACK TO SAVEPOINT a');
    return 0;
  }
  await session.query('RELEASE SAVEPOINT a');
  return count;
}

/** Everything before the commit; returns how many events are kept. */
async function writeSome(session, entity, tx) {
  const total = 1 + below(MAX_EVENTS);
  const open = await beginOn(session, entity, tx, 2 * MAX_EVENTS);
  const statements = Math.min(total, 1 + below(MAX_STATEMENTS));
  for (let index = 0; index < statements; index += 1) {
    const isLast = index === statements - 1;
    await open.write(isLast ? total - open.used : Math.floor(total / statements));
  }
  const hasSavepoint = Math.random() < SAVEPOINT_SHARE;
  return total + (hasSavepoint ? await writeUnderSavepoint(session, open, 1 + below(MAX_EVENTS)) : 0);
}

/** One short transaction, and its outcome. A connection lost before COMMIT was sent means that nothing was kept. */
export async function runShort(session, ledger, tx) {
  const startedAt = performance.now();
  let kept;
  try {
    kept = await writeSome(session, below(HOT_ENTITIES), tx);
    if (Math.random() < ABORT_SHARE) {
      ledger.aborted.add(tx);
      await session.query('ROLLBACK');
      return;
    }
  } catch (error) {
    ledger.aborted.add(tx);
    if (!isGone(error)) throw error;
    return;
  }
  await commit(session, ledger, tx, kept);
  ledger.noteLength(performance.now() - startedAt);
}

export async function commit(session, ledger, tx, kept) {
  try {
    await session.query('COMMIT');
    ledger.committed.set(tx, kept);
  } catch (error) {
    ledger.unknown.set(tx, kept);
    if (!isGone(error)) throw error;
  }
}
