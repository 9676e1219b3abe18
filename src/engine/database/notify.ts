/**
 * Hints between processes: sending them and listening for them. A hint carries nothing that matters; a process that
 * loses all of them only waits longer. Listening takes one connection per process. A heartbeat checks that it still
 * works: a listener sends nothing by itself, so it would never notice that the other side has disappeared.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { EngineError } from '../../contract/errors.ts';
import { CONNECT_LIMIT_MS, run, type Database } from './database.ts';
import { hintChannel, quoteIdentifier } from './names.ts';
import { trackSockets } from './sockets.ts';
import { within } from './within.ts';

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
  /** Drops the connection without notifying the server. */
  abandon(): void;
}

export interface ListenerEvents {
  /** A hint arrived. */
  hint(payload: string): void;
  /** The channel is open, for the first time or again: hints sent before are lost, so poll. */
  open(): void;
  /** The channel was lost. It is reopened automatically. */
  lost?(): void;
}

export interface Heartbeat {
  /** From one answer to the next query. */
  everyMs: number;
  /** How long an answer may take before the connection is considered lost. */
  answerMs: number;
}

/** Together under ten seconds: the longest a dead connection goes unnoticed. */
export const LISTENER_HEARTBEAT: Heartbeat = { everyMs: 4_500, answerMs: 4_000 };
const RECONNECT_WAIT_MS = { min: 100, max: 5_000 };
/** A connection that does not close cleanly within this time is dropped. */
const LEAVE_LIMIT_MS = 500;

/** Listens until closed; a lost connection is reopened after a growing, jittered delay. */
export function listenForHints(
  databaseUrl: string,
  schema: string,
  events: ListenerEvents,
  heartbeat: Heartbeat = LISTENER_HEARTBEAT,
): Listener {
  let current: Line | undefined;
  const sockets = trackSockets();
  let timer: NodeJS.Timeout | undefined;
  let waitMs = RECONNECT_WAIT_MS.min;
  let isOpen = false;

  const reconnect = (lost: Line): void => {
    if (current !== lost) return;
    current = undefined;
    lost.socket.destroy();
    if (isOpen) events.lost?.();
    isOpen = false;
    openLater();
  };

  const openLater = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => void open(), waitMs * (0.5 + Math.random()));
    waitMs = Math.min(waitMs * 2, RECONNECT_WAIT_MS.max);
  };

  const ask = async (line: Line): Promise<void> => {
    try {
      await within(heartbeat.answerMs, line.client.query('SELECT 1'), noAnswer);
      if (current === line) timer = setTimeout(() => void ask(line), heartbeat.everyMs);
    } catch {
      reconnect(line);
    }
  };

  const open = async (): Promise<void> => {
    const line = newLine(databaseUrl, sockets.open(), events, reconnect);
    // Perhaps a file named in the URL is being replaced right now.
    if (line === undefined) return openLater();
    current = line;
    try {
      await beginListening(line, schema, heartbeat.answerMs);
      if (current !== line) return;
      waitMs = RECONNECT_WAIT_MS.min;
      timer = setTimeout(() => void ask(line), heartbeat.everyMs);
      isOpen = true;
      events.open();
    } catch {
      reconnect(line);
    }
  };

  /** Without a current line nothing is queried, opened or reported any more. */
  const end = (): Line | undefined => {
    clearTimeout(timer);
    const last = current;
    current = undefined;
    return last;
  };

  void open();
  return {
    close: () => leave(end()),
    abandon() {
      end();
      sockets.destroyAll();
    },
  };
}

interface Line {
  client: pg.Client;
  /** Destroyed directly: closing the client waits for the other side, which may never respond. */
  socket: Socket;
}

function newLine(
  databaseUrl: string,
  socket: Socket,
  events: ListenerEvents,
  onLost: (line: Line) => void,
): Line | undefined {
  try {
    const client = new pg.Client({
      connectionString: databaseUrl,
      keepAlive: true,
      application_name: 'flowfabric listener',
      connectionTimeoutMillis: CONNECT_LIMIT_MS,
      stream: () => socket,
    });
    const line = { client, socket };
    client.on('error', () => onLost(line));
    client.on('end', () => onLost(line));
    client.on('notification', (message) => events.hint(message.payload ?? ''));
    return line;
  } catch {
    socket.destroy();
    return undefined;
  }
}

async function beginListening({ client }: Line, schema: string, answerMs: number): Promise<void> {
  await client.connect();
  await within(answerMs, client.query(`LISTEN ${quoteIdentifier(hintChannel(schema))}`), noAnswer);
}

async function leave(line: Line | undefined): Promise<void> {
  if (line === undefined) return;
  await within(LEAVE_LIMIT_MS, line.client.end(), noAnswer).catch(() => undefined);
  line.socket.destroy();
}

function noAnswer(): EngineError {
  return new EngineError('unavailable', 'The database did not answer the listener in time.');
}
