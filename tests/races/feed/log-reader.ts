/**
 * How a race reads the event log: the real way, by position, and the comparison of what a reader got with what the log
 * contains. Naive ways of reading implement the same interface elsewhere, so that one race runs on all of them.
 */
import {
  sequenceEvents,
  readEvents,
  type StoredEvent,
  type StoredEventFilter,
} from '../../../src/engine/feed/events.sql.ts';
import { openDatabase, type Database, type PoolLike } from '../../../src/engine/database/database.ts';
import { DEFAULT_SCHEMA } from '../../../src/engine/database/migrations/migrate.ts';
import type { Ask } from '../calls.ts';

export const EVERYTHING: StoredEventFilter = {
  families: null,
  types: null,
  namespace: null,
  tags: null,
  kind: null,
  lane: null,
  execution: null,
  flow: null,
  partitions: null,
};

/** Fewer than a race writes, so that a read takes more than one page. */
const PAGE = 2;

export interface Seen {
  position: bigint;
  /** Identifies the event within its race. */
  label: string;
  /** The execution it is about, or null. */
  subject: string | null;
}

export interface LogReader {
  /** Whether positions must be without a gap. */
  isDense: boolean;
  /** The position from which everything committed later follows. */
  now(ask: Ask): Promise<bigint>;
  /** What follows a position, until there is nothing more. */
  read(ask: Ask, after: bigint): Promise<{ seen: Seen[]; to: bigint }>;
}

/** The store's own statements, on the connection of a race. */
export function storeOn(ask: Ask): Database {
  const query = ({ text, values }: { text: string; values: unknown[] }) => ask(text, values);
  const pool = { query } as PoolLike;
  return { ...openDatabase({ schema: DEFAULT_SCHEMA, pool }), prefix: '' };
}

export function labelOf(row: object): Pick<Seen, 'label' | 'subject'> {
  const { uuid, workerInstanceId, type, detail } = row as Pick<
    StoredEvent,
    'uuid' | 'workerInstanceId' | 'type' | 'detail'
  >;
  const { set = {} } = (detail ?? {}) as { set?: Record<string, string> };
  return { subject: uuid, label: [uuid ?? workerInstanceId, type, ...Object.values(set)].join(' ') };
}

/** What a label is made of, from the table itself. */
export const LABELLED =
  'execution_id AS uuid, worker_instance_id AS "workerInstanceId", event_type AS type, detail';

/** Positions are assigned before each read, as every subscriber does. */
export const BY_POSITION: LogReader = {
  isDense: true,
  now: async (ask) => (await sequenceEvents(storeOn(ask), 'wait')).last,
  async read(ask, after) {
    await sequenceEvents(storeOn(ask), 'skip');
    return readPages(ask, after);
  },
};

/** The same, with another function in place of ff_sequence. */
export function sequencedBy(name: string): LogReader {
  return {
    ...BY_POSITION,
    async read(ask, after) {
      await ask(`SELECT FROM ${name}(true, NULL)`);
      return readPages(ask, after);
    },
  };
}

async function readPages(ask: Ask, after: bigint): Promise<{ seen: Seen[]; to: bigint }> {
  const seen: Seen[] = [];
  for (let to = after; ;) {
    const page = await readEvents(storeOn(ask), to, { examined: PAGE, limit: PAGE }, EVERYTHING);
    seen.push(...page.rows.map((row) => ({ ...labelOf(row), position: BigInt(row.position) })));
    if (page.to === to) return { seen, to };
    to = page.to;
  }
}

/** What the log contains after an id, in the order it was written, which is the causal order for each execution. */
export async function writtenAfter(ask: Ask, logged: number): Promise<Omit<Seen, 'position'>[]> {
  const { rows } = await ask(`SELECT ${LABELLED} FROM ff_event WHERE ev_id > $1 ORDER BY ev_id`, [logged]);
  return rows.map(labelOf);
}

const subjectsOf = (events: readonly Omit<Seen, 'position'>[]) => [
  ...new Set(events.flatMap(({ subject }) => subject ?? [])),
];

const labelsOf = (events: readonly Omit<Seen, 'position'>[], subject: string) =>
  events
    .filter((event) => event.subject === subject)
    .map(({ label }) => label)
    .join(', ');

/** What is wrong with what a reader got; empty when nothing is. */
export function faultsOf(
  reader: LogReader,
  start: bigint,
  seen: readonly Seen[],
  written: readonly Omit<Seen, 'position'>[],
): string {
  const count = (label: string) => seen.filter((event) => event.label === label).length;
  const faults = written.flatMap(({ label }) => {
    if (count(label) === 0) return [`lost: ${label}`];
    return count(label) > 1 ? [`doubled: ${label}`] : [];
  });
  const known = new Set(written.map(({ label }) => label));
  faults.push(...seen.filter(({ label }) => !known.has(label)).map(({ label }) => `unknown: ${label}`));
  if (faults.length === 0) {
    for (const subject of subjectsOf(written)) {
      const [got, was] = [labelsOf(seen, subject), labelsOf(written, subject)];
      if (got !== was) faults.push(`turned around: ${got} instead of ${was}`);
    }
  }
  const positions = seen.map(({ position }) => position);
  const isDense = positions.every((position, index) => position === start + BigInt(index) + 1n);
  if (reader.isDense && !isDense) faults.push(`not dense: ${positions.join(', ')} after ${start}`);
  return faults.join('\n');
}
