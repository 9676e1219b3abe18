/**
 * Tries out how a server is reached: whether hints arrive, and whether connections are shared by a pooler. For whoever examines an
 * installation; what the answers mean is decided elsewhere.
 */
import { randomUUID } from 'node:crypto';
import type { ClientLike, Database } from './database.ts';
import { toEngineError } from './errors.ts';
import { listenForHints, sendHint } from './notify.ts';

/** `unopened`: the listening connection did not come about. */
export type Echo = 'heard' | 'unheard' | 'unopened';

/** Sends a hint through the pool and waits for it on a listening connection. Workers take it for an empty one. */
export async function hearOwnHint(
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
      if (echo === 'unopened') echo = 'unheard';
      sendHint(database, payload).catch(settle);
    },
    hint(heard) {
      if (heard !== payload) return;
      echo = 'heard';
      settle();
    },
  });
  await settled;
  clearTimeout(limit);
  await listener.close();
  return echo;
}

/** The server processes that answered two connections; those of direct connections stay the same and are not shared. */
export interface AnsweringPids {
  first: number[];
  second: number[];
}

/** Needs two connections of the pool at once. */
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
    throw toEngineError(error, 'asking which process answers');
  }
}
