/**
 * A planted bug: the reader everybody writes first, `ev_id > cursor ORDER BY ev_id`. An event that commits after a
 * higher id was read is never seen. A soak in which it loses nothing has shown nothing.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { isGone, Session } from './session.mjs';

const PAGE = 500;
const EVERY_MS = 5;
const NEXT = 'SELECT ev_id, n FROM ff_event_pack WHERE ev_id > $1 ORDER BY ev_id LIMIT $2';

export function startNaiveReader(url) {
  const session = new Session(url, 'soak-naive');
  const stopping = new AbortController();
  let seen = 0;
  let cursor = 0;
  const read = async () => {
    const rows = await session.rows(NEXT, [cursor, PAGE]);
    for (const { n } of rows) seen += n;
    cursor = Number(rows.at(-1)?.ev_id ?? cursor);
    return rows.length;
  };
  const follow = async () => {
    while (!stopping.signal.aborted) {
      await read().catch((error) => {
        if (!isGone(error)) throw error;
      });
      await delay(EVERY_MS);
    }
    while ((await read()) > 0);
    await session.close();
  };
  const following = follow();
  following.catch(() => undefined);
  return {
    /** Reads to the end; returns how many it saw. */
    async stop() {
      stopping.abort();
      await following;
      return seen;
    },
  };
}
