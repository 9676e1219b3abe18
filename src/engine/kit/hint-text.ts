/**
 * What a notification between processes says, as text. It names what changed; what does not fit becomes "poll
 * everything", and so does what cannot be read, because another version may have sent it.
 */
import type { Hint } from '../../contract/protocol.ts';

/** A notification has room for just under 8,000 bytes. */
const MAX_HINT_BYTES = 7_900;

/** What a process wants to be notified of, and for how long. */
export interface Asking {
  /** In milliseconds: what finishes, and which streams are written to. */
  asks: number;
  follows: number;
  /** Who asks. */
  from: string;
}

/** A write to a stream that carries its frames; what they are is for the readers of streams to decide. */
export interface Written {
  uuid: string;
  /** From the writer. */
  wrote: unknown;
  /** From the database: time and number of the last frame, bytes so far, time of the frame before. */
  at: unknown;
}

export interface Heard {
  hint: Hint;
  asking: Asking | null;
  /** The last position of the event feed, when the notification is about that. */
  last: bigint | null;
  written: Written | null;
}

interface Wire extends Partial<Asking> {
  routes?: number[] | 'all';
  due?: number;
  workers?: string[];
  ended?: string[] | 'all';
  streams?: string[] | 'all';
  /** The last position of the event feed, as a string. */
  events?: string;
  wrote?: unknown;
  at?: unknown;
}

export const EVERYTHING: Partial<Hint> = { routes: 'all', ended: 'all', streams: 'all' };

export function completeHint(hint: Partial<Hint>): Hint {
  return {
    routes: hint.routes ?? [],
    count: hint.count ?? 0,
    dueInMs: hint.dueInMs ?? null,
    workers: hint.workers ?? [],
    ended: hint.ended ?? [],
    streams: hint.streams ?? [],
  };
}

export function mergeHints(a: Hint, b: Hint): Hint {
  const due = [a.dueInMs, b.dueInMs].filter((ms) => ms !== null);
  return {
    routes: a.routes === 'all' || b.routes === 'all' ? 'all' : [...new Set([...a.routes, ...b.routes])],
    count: a.count + b.count,
    dueInMs: due.length === 0 ? null : Math.min(...due),
    workers: [...new Set([...a.workers, ...b.workers])],
    ended: a.ended === 'all' || b.ended === 'all' ? 'all' : [...a.ended, ...b.ended],
    streams: a.streams === 'all' || b.streams === 'all' ? 'all' : [...new Set([...a.streams, ...b.streams])],
  };
}

export function encodeHint(hint: Hint, asking: Partial<Asking>): string {
  const due = hint.dueInMs === null ? {} : { due: hint.dueInMs };
  const routes = hint.routes.length === 0 ? {} : { routes: hint.routes };
  const workers = hint.workers.length === 0 ? {} : { workers: hint.workers };
  const ended = hint.ended.length === 0 ? {} : { ended: hint.ended };
  const streams = hint.streams.length === 0 ? {} : { streams: hint.streams };
  const text = JSON.stringify({ ...routes, ...workers, ...due, ...ended, ...streams, ...asking });
  if (Buffer.byteLength(text) <= MAX_HINT_BYTES) return text;
  // Too many outcomes or streams alone must not make every worker poll.
  const fewer = JSON.stringify({ ...routes, ...workers, ...due, ended: 'all', streams: 'all', ...asking });
  if (Buffer.byteLength(fewer) <= MAX_HINT_BYTES) return fewer;
  return JSON.stringify({ routes: 'all', workers: ['*'], ...due, ended: 'all', streams: 'all', ...asking });
}

/**
 * The beginning of a notification inside the transaction that writes to a stream. The statement appends the numbers of
 * `at`, and closes it.
 */
export function textInside(uuid: string, wrote: object | undefined): string {
  return `{"streams":["${uuid}"],${wrote === undefined ? '' : `"wrote":${JSON.stringify(wrote)},`}"at":[`;
}

export function decodeHint(payload: string): Heard {
  try {
    const wire = JSON.parse(payload) as Wire;
    const hint = completeHint({
      routes: wire.routes === 'all' || Array.isArray(wire.routes) ? wire.routes : [],
      count: Number.MAX_SAFE_INTEGER,
      dueInMs: typeof wire.due === 'number' ? wire.due : null,
      workers: Array.isArray(wire.workers) ? wire.workers : [],
      ended: wire.ended === 'all' || Array.isArray(wire.ended) ? wire.ended : [],
      streams: wire.streams === 'all' || Array.isArray(wire.streams) ? wire.streams : [],
    });
    const last = wire.events === undefined ? null : BigInt(wire.events);
    return { hint, asking: askingOf(wire), last, written: writtenOf(wire) };
  } catch {
    return { hint: completeHint(EVERYTHING), asking: null, last: null, written: null };
  }
}

function askingOf({ asks, follows, from }: Wire): Asking | null {
  if (typeof asks !== 'number' && typeof follows !== 'number') return null;
  return { asks: Number(asks ?? 0), follows: Number(follows ?? 0), from: String(from ?? '') };
}

function writtenOf({ streams, wrote, at }: Wire): Written | null {
  const uuid = Array.isArray(streams) && streams.length === 1 ? streams[0] : undefined;
  return wrote === undefined || uuid === undefined ? null : { uuid, wrote, at };
}
