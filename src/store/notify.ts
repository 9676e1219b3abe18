/**
 * Hints between processes: sending them and listening for them. A hint carries nothing that matters; whoever loses
 * every one of them only waits longer. Listening holds one connection of its own for the whole process.
 */
import pg from 'pg';
import { CONNECT_LIMIT_MS, run, type Database } from './database.ts';
import { hintChannel, quoteIdentifier } from './names.ts';

export async function sendHint(database: Database, payload: string): Promise<void> {
  await run(database, {
    doing: 'sending a hint',
    text: 'SELECT pg_notify($1, $2)',
    params: [hintChannel(database.schema), payload],
    repeatable: 'yes',
  });
}

export interface Listener {
  close(): Promise<void>;
}

export interface ListenerEvents {
  /** A hint arrived. */
  hint(payload: string): void;
  /** The channel is open, for the first time or again: whatever was sent meanwhile is lost, look for yourself. */
  open(): void;
}

const RECONNECT_WAIT_MS = { min: 100, max: 5_000 };

/** Listens until closed; a lost connection is opened again with a growing, jittered wait. */
export function listenForHints(databaseUrl: string, schema: string, events: ListenerEvents): Listener {
  let client: pg.Client | undefined;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;
  let waitMs = RECONNECT_WAIT_MS.min;

  const reconnect = (lost: pg.Client): void => {
    if (client !== lost) return;
    client = undefined;
    lost.end().catch(() => undefined);
    if (closed) return;
    timer = setTimeout(() => void open(), waitMs * (0.5 + Math.random()));
    waitMs = Math.min(waitMs * 2, RECONNECT_WAIT_MS.max);
  };

  const open = async (): Promise<void> => {
    const opened = new pg.Client({
      connectionString: databaseUrl,
      keepAlive: true,
      application_name: 'flowfabric listener',
      connectionTimeoutMillis: CONNECT_LIMIT_MS,
    });
    client = opened;
    opened.on('error', () => reconnect(opened));
    opened.on('end', () => reconnect(opened));
    opened.on('notification', (message) => events.hint(message.payload ?? ''));
    try {
      await opened.connect();
      await opened.query(`LISTEN ${quoteIdentifier(hintChannel(schema))}`);
      waitMs = RECONNECT_WAIT_MS.min;
      if (!closed) events.open();
    } catch {
      reconnect(opened);
    }
  };

  void open();
  return {
    async close() {
      closed = true;
      clearTimeout(timer);
      await client?.end().catch(() => undefined);
    },
  };
}
