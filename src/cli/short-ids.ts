/**
 * Ids as people read and type them. On a terminal an id is printed as the shortest beginning that no other has;
 * everywhere else it is printed whole. Every command takes both, and a beginning that several have is refused with those
 * it could mean.
 */
import type { Connection } from '../connect/connection.ts';
import { EngineError } from '../contract/errors.ts';
import type { FlowSummary } from '../contract/flows.ts';
import { parseExecutionId, parseIdPrefix } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type { ExecutionSummary } from '../contract/operations.ts';
import { shortDuration } from '../contract/shape/duration.ts';
import { UsageError } from './exit-codes.ts';
import { printable } from '../contract/secrets.ts';
import type { Session } from './session.ts';
import { columnsOf, type Span } from './style.ts';
import { column, tableOf } from './table.ts';
import { flowToneOf, toneOf } from './wording.ts';

type Finder = Pick<Connection, 'executions' | 'flows' | 'upkeep'>;

const COLUMNS = [
  column('ID', 'whole'),
  column('TASK'),
  column('STATE', 'whole'),
  column('AGE', 'number'),
] as const;

/** A key in the place of an id: no id begins like that. */
const KEY_PREFIX = 'key:';

/** What stands for the id of the execution that a key names. */
export function keyArgument(key: string, namespace = 'default'): string {
  return `${KEY_PREFIX}${JSON.stringify([namespace, key])}`;
}

function keyIn(text: string): { namespace: string; key: string } | undefined {
  if (!text.startsWith(KEY_PREFIX)) return undefined;
  const [namespace, key] = JSON.parse(text.slice(KEY_PREFIX.length)) as [string, string];
  return { namespace, key };
}

/** Refuses what cannot be an id, before the database is asked. */
export function checkId(text: string, field = 'id'): void {
  if (!text.startsWith(KEY_PREFIX)) parseIdPrefix(text, field);
}

/** The id of the only execution that the text can mean. A whole id is returned as it is, whether it exists or not. */
export async function executionIdOf(
  engine: Finder,
  session: Session,
  text: string,
  field = 'id',
): Promise<string> {
  checkId(text, field);
  if (text.startsWith('{')) return text;
  const named = keyIn(text);
  if (named !== undefined) {
    const found = await engine.executions.byKey(named.key, { namespace: named.namespace });
    if (found === null) throw await noExecution(engine, text);
    return found.executionId;
  }
  const { executions, hasMore } = await engine.executions.find(text);
  if (executions.length > 1) {
    const rows = executions.map(rowOfExecution);
    throw await ambiguous(engine, session, { text, noun: 'executions', rows, hasMore });
  }
  const [only] = executions;
  if (only === undefined) throw await noExecution(engine, text);
  return only.executionId;
}

/** The same for all of them, or for none. */
export async function executionIdsOf(
  engine: Finder,
  session: Session,
  texts: readonly string[],
): Promise<string[]> {
  const ids: string[] = [];
  for (const text of texts) ids.push(await executionIdOf(engine, session, text));
  return ids;
}

/** The id of the only flow that the text can mean. A whole id is returned as it is, whether it exists or not. */
export async function flowIdOf(
  engine: Finder,
  session: Session,
  text: string,
  field = 'id',
): Promise<string> {
  checkId(text, field);
  if (text.startsWith('{')) return text;
  const { flows, hasMore } = await engine.flows.find(text);
  if (flows.length > 1) {
    const rows = flows.map(rowOfFlow);
    throw await ambiguous(engine, session, { text, noun: 'flows', rows, hasMore });
  }
  const [only] = flows;
  if (only === undefined) throw await noFlow(engine, text);
  return only.flowId;
}

interface Candidate {
  id: string;
  kind: Span;
  state: Span;
  createdAtMs: number;
}

function rowOfExecution({ executionId, kind, state, createdAtMs }: ExecutionSummary): Candidate {
  return {
    id: executionId,
    kind: [printable(kind)],
    state: [state, toneOf(state)],
    createdAtMs,
  };
}

function rowOfFlow({ flowId, name, state, createdAtMs }: FlowSummary): Candidate {
  return { id: flowId, kind: [printable(name)], state: [state, flowToneOf(state)], createdAtMs };
}

interface Ambiguity {
  text: string;
  noun: 'executions' | 'flows';
  rows: readonly Candidate[];
  hasMore: boolean;
}

async function ambiguous(
  engine: Finder,
  session: Session,
  { text, noun, rows, hasMore }: Ambiguity,
): Promise<UsageError> {
  const many = hasMore ? `more than ${rows.length}` : `${rows.length}`;
  const error = new UsageError(`${text} is the beginning of the ids of ${many} ${noun}: give more of it.`);
  const nowMs = await engine.upkeep.serverTimeMs();
  const short = await shortIds(engine, session, rows);
  const width = columnsOf(process.stderr);
  const cells = rows.map(({ id, kind, state, createdAtMs }): Span[] => [
    [short(id)],
    kind,
    state,
    [shortDuration(nowMs - createdAtMs)],
  ]);
  error.detail = {
    code: 'ambiguous_id',
    json: {
      candidates: rows.map(({ id, kind, state, createdAtMs }) => ({
        id,
        kind: kind[0],
        state: state[0],
        createdAtMs,
      })),
    },
    lines: tableOf(noun === 'flows' ? COLUMNS.with(1, column('NAME')) : COLUMNS, cells, width),
  };
  return error;
}

/** There is no such execution; says so when it is a flow. */
export async function noExecution(engine: Finder, text: string): Promise<EngineError> {
  const named = keyIn(text);
  if (named !== undefined) {
    const { key, namespace } = named;
    const where = `in the namespace ${printable(namespace)}`;
    return new EngineError('not_found', `There is no execution with the key ${printable(key)} ${where}.`);
  }
  const { flows } = await engine.flows.find(text);
  const sentence = `There is no execution ${printable(text)}`;
  const [flow] = flows;
  return new EngineError(
    'not_found',
    flow === undefined
      ? `${sentence}.`
      : `${sentence}: it is a flow. See \`flowfabric flows describe ${quotedId(text)}\`.`,
  );
}

/** There is no such flow; says so when it is an execution. */
export async function noFlow(engine: Finder, text: string): Promise<EngineError> {
  const { executions } = await engine.executions.find(text);
  const sentence = `There is no flow ${printable(text)}`;
  const [execution] = executions;
  return new EngineError(
    'not_found',
    execution === undefined
      ? `${sentence}.`
      : `${sentence}: it is an execution. See \`flowfabric describe ${quotedId(text)}\`.`,
  );
}

function quotedId(text: string): string {
  return text.startsWith('{') ? `'${text}'` : text;
}

/** Shortens every id in a text. */
export type Shorten = (text: string) => string;

const ID = /\{fp:\d{1,3}\}:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** How the ids in a value are printed: short on a terminal, whole elsewhere. */
export async function shortIds(
  engine: Pick<Connection, 'executions'>,
  { printer }: Pick<Session, 'printer'>,
  value: unknown,
): Promise<Shorten> {
  if (printer.columns === null || printer.format === 'json') return (text) => text;
  const ids = [...new Set(JSON.stringify(value).match(ID))].filter(isId);
  const short = new Map<string, string>();
  for (let from = 0; from < ids.length; from += LIMITS.idBatch) {
    const some = ids.slice(from, from + LIMITS.idBatch);
    const names = await engine.executions.shorten(some);
    some.forEach((id, index) => short.set(id, names[index]!));
  }
  return (text) => text.replaceAll(ID, (id) => short.get(id) ?? id);
}

/** What others wrote may look like an id and be none. */
function isId(text: string): boolean {
  try {
    parseExecutionId(text);
    return true;
  } catch {
    return false;
  }
}
