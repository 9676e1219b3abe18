/**
 * Probes how a server is reached: whether hints arrive, and whether a pooler shares connections. Used by the doctor,
 * which interprets the results.
 */
import { randomUUID } from 'node:crypto';
import type { ClientLike, Database } from './database.ts';
import { toEngineError } from './errors.ts';
import { listenForHints, sendHint } from './notify.ts';

/** `unopened`: the listening connection could not be opened. */
export type Echo = 'received' | 'missed' | 'unopened';

/** Sends a hint through the pool and waits for it on a listening connection. Workers read it as an empty hint. */
export async function echoHint(
  database: Database,
  options: { listenUrl: string; limitMs: number },
): Promise<Echo> {
  const payload = JSON.stringify({ probe: randomUUID() });
  let echo: Echo = 'unopened';
  let settle: () => void = () => undefined;
  const settled = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const limit = setTimeout(settle, options.limitMs);
  const listener = listenForHints(options.listenUrl, database.schema, {
    open() {
      if (echo === 'unopened') echo = 'missed';
      sendHint(database, payload).catch(settle);
    },
    hint(received) {
      if (received !== payload) return;
      echo = 'received';
      settle();
    },
  });
  await settled;
  clearTimeout(limit);
  await listener.close();
  return echo;
}

/** The server processes behind two connections. Without a pooler each connection keeps its own. */
export interface AnsweringPids {
  first: number[];
  second: number[];
}

/** Needs two connections of the pool at the same time. */
export async function readAnsweringPids(database: Database): Promise<AnsweringPids> {
  const first = await connectOnce(database);
  try {
    const second = await connectOnce(database);
    try {
      const pids: AnsweringPids = { first: [], second: [] };
      for (const name of ['first', 'second', 'first', 'second'] as const)
        pids[name].push(await pidOf({ first, second }[name]));
      return pids;
    } finally {
      second.release();
    }
  } finally {
    first.release();
  }
}

async function connectOnce(database: Database): Promise<ClientLike> {
  try {
    return await database.pool.connect!();
  } catch (error) {
    throw toEngineError(error, 'opening a second connection');
  }
}

async function pidOf(client: ClientLike): Promise<number> {
  try {
    const { rows } = await client.query('SELECT pg_backend_pid()::text AS pid');
    return Number((rows[0] as { pid: string }).pid);
  } catch (error) {
    throw toEngineError(error, 'identifying the server process');
  }
}
