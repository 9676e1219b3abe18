/**
 * Rivals that assign positions, on separate connections, and a session that kills one of them again and again, in the
 * middle of a call if possible. Meanwhile the log moves on to its next slot now and then.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { isGone, SCHEMA, Session } from './session.mjs';

const RIVALS = 3;
const EVERY_MS = 10;
const KILL_EVERY_MS = 500;
/** A slot is never truncated here, so no more than this many can be opened. */
const SLOTS = 5;
const WAITING_SHARE = 0.5;
const NAME = 'soak-sequencer';
const CHANNEL = `${SCHEMA}_hints`;
export const SEQUENCE = 'SELECT last_position, stamped FROM ff_sequence($1, $2)';
const KILL = `
  SELECT state, pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1
  ORDER BY state = 'active' AND query LIKE 'SELECT last_position%' DESC, random() LIMIT 1`;

export function startSequencers(url, { seconds, fault }) {
  const stopping = new AbortController();
  const counts = { calls: 0, kills: 0, killedInCall: 0, slots: 1 };
  /** Again and again until told to stop; a lost connection is not a fault. */
  const repeat = async (name, everyMs, work) => {
    const session = new Session(url, name);
    while (!stopping.signal.aborted) {
      try {
        await work(session);
      } catch (error) {
        if (!isGone(error)) fault(error);
      }
      await delay(everyMs(), undefined, { signal: stopping.signal }).catch(() => undefined);
    }
    await session.close();
  };
  const sequence = async (session) => {
    await session.query(SEQUENCE, [Math.random() < WAITING_SHARE, CHANNEL]);
    counts.calls += 1;
  };
  const kill = async (session) => {
    const [killed] = await session.rows(KILL, [NAME]);
    if (killed === undefined) return;
    counts.kills += 1;
    if (killed.state === 'active') counts.killedInCall += 1;
  };
  const openSlot = async (session) => {
    const [{ opened }] = await session.rows('SELECT ff_open_slot(0) AS opened');
    if (opened) counts.slots += 1;
  };
  const slotMs = (1_000 * seconds) / SLOTS;
  const running = Promise.all([
    ...Array.from({ length: RIVALS }, () => repeat(NAME, () => Math.random() * 2 * EVERY_MS, sequence)),
    repeat('soak-killer', () => KILL_EVERY_MS, kill),
    repeat('soak-slots', () => slotMs, openSlot),
  ]);
  return {
    counts,
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Assigns positions to everything that has none; returns the last one. */
export async function sequenceAll(session) {
  for (;;) {
    const [{ last_position: last, stamped }] = await session.rows(SEQUENCE, [true, CHANNEL]);
    if (Number(stamped) === 0) return Number(last);
  }
}
