/**
 * Calls the SQL functions of messages, and reads messages and replies. Only statements, no decisions.
 */
import type { ListedMessage, RunSummary } from '../../contract/messages.ts';
import { columns, columnsOf, inSchema, withColumns, type RowOf } from '../database/columns.ts';
import { onlyRow, run, type Database } from '../database/database.ts';
import { runForPerson } from '../database/held.ts';
import type { Answered, Refused } from '../executions/answered.sql.ts';
import { submitParams, SUBMIT_ARGUMENTS, type SubmitCall } from '../executions/submitting/submits.sql.ts';
import { jsonValues, JSON_VALUES, type ExecutionKey, type LeaseKey } from '../executions/executions.sql.ts';

export interface MessageCall extends ExecutionKey {
  mailbox: string;
  messageId: string;
  /** JSON text. */
  payload: string;
  isRequest: boolean;
}

export interface MailboxLimits {
  maxMessages: number;
  maxBytes: number;
}

/** `resumed`: the execution was waiting for it. */
const SENT = columnsOf<
  Answered<'sent' | 'resumed' | 'duplicate' | 'not_active' | 'too_many' | 'not_found' | 'held'> & {
    place: number;
  }
>()('place', 'outcome', 'terminalOutcome', 'routeId', 'dueInMs');
export type SentAnswer = RowOf<typeof SENT>;

function sendStatement(
  { prefix }: Database,
  calls: readonly MessageCall[],
  { maxMessages, maxBytes }: MailboxLimits,
  waits: boolean,
) {
  return {
    columns: SENT,
    text: `SELECT ${SENT.list} FROM ${prefix}ff_send_messages($1::uuid[], $2::smallint[], $3::text[], $4::text[],
      ${JSON_VALUES('$5')}, $6::boolean[], $7::boolean, $8::integer, $9::bigint)`,
    params: [
      calls.map(({ uuid }) => uuid),
      calls.map(({ partition }) => partition),
      calls.map(({ mailbox }) => mailbox),
      calls.map(({ messageId }) => messageId),
      jsonValues(calls.map(({ payload }) => payload)),
      calls.map(({ isRequest }) => isRequest),
      waits,
      maxMessages,
      maxBytes,
    ],
    // Because of their ids.
    repeatable: 'yes' as const,
  };
}

export async function sendMessage(
  database: Database,
  call: MessageCall,
  limits: MailboxLimits,
): Promise<SentAnswer> {
  const statement = sendStatement(database, [call], limits, true);
  const rows = await runForPerson(database, { doing: 'sending a message', ...statement }, [call.uuid]);
  return onlyRow('sending a message', rows);
}

/** Sends messages in order. Undefined for one that needs a statement of its own: nothing was done. */
export async function sendMessages(
  database: Database,
  calls: readonly MessageCall[],
  limits: MailboxLimits,
): Promise<(SentAnswer | undefined)[]> {
  const statement = sendStatement(database, calls, limits, false);
  const rows = await run(database, { doing: 'sending messages', ...statement, waits: 'once' });
  const byPlace = new Map(rows.map((row) => [row.place, row]));
  return calls.map((_, index) => {
    const answer = byPlace.get(index + 1);
    return answer?.outcome === 'held' ? undefined : answer;
  });
}

/** The columns of a submit, and what became of the message. */
const STARTED = withColumns(
  columnsOf<Answered<'submitted' | 'attached' | 'duplicate' | 'unknown_route'>>()(
    'uuid',
    'outcome',
    'routeId',
    'dueInMs',
  ),
  columnsOf<{ sent: SentAnswer['outcome']; resumedRouteId: number | null; resumedDueInMs: number | null }>()(
    'sent',
    'resumedRouteId',
    'resumedDueInMs',
  ),
);

/** Submits under a key unless it names an open execution, and sends a message to whichever it names then. */
export async function startAndSend(
  database: Database,
  start: SubmitCall,
  message: Omit<MessageCall, keyof ExecutionKey> & { key: string },
  { maxMessages, maxBytes }: MailboxLimits,
): Promise<RowOf<typeof STARTED>> {
  const { key, mailbox, messageId, payload, isRequest } = message;
  const statement = {
    doing: 'sending a message',
    columns: STARTED,
    text: `SELECT ${STARTED.list} FROM ${database.prefix}ff_start_and_send(${SUBMIT_ARGUMENTS}, p_key => $8::text,
      p_mailbox => $9::text, p_message_id => $10::text, p_message => $11::text::jsonb, p_is_request => $12::boolean,
      p_max_messages => $13::integer, p_max_bytes => $14::bigint)`,
    params: [...submitParams(start), key, mailbox, messageId, payload, isRequest, maxMessages, maxBytes],
    // Because of their ids.
    repeatable: 'yes' as const,
  };
  return onlyRow('sending a message', await run(database, statement));
}

export interface ReplyCall extends LeaseKey {
  messageId: string;
  name: string;
  key: string;
  /** JSON text. */
  value: string;
}

const LEASE = '$1::uuid, $2::smallint, $3::integer, $4::bigint';

function leaseParams({ uuid, partition, attemptIndex, leaseEpoch }: LeaseKey): unknown[] {
  return [uuid, partition, attemptIndex, leaseEpoch];
}

const REPLIED = columnsOf<Refused>()('outcome', 'lifecyclePhase', 'terminalOutcome', 'leaseEpoch');

export async function replyToMessage(database: Database, call: ReplyCall): Promise<RowOf<typeof REPLIED>> {
  const rows = await run(database, {
    doing: 'replying to a message',
    columns: REPLIED,
    text: `SELECT ${REPLIED.list} FROM ${database.prefix}ff_reply(${LEASE}, $5::text, $6::text, $7::text, $8::jsonb)`,
    params: [...leaseParams(call), call.messageId, call.name, call.key, call.value],
    repeatable: 'yes',
  });
  return onlyRow('replying to a message', rows);
}

export interface RequestKey extends ExecutionKey {
  messageId: string;
}

/** `reply` is in an array, so that a null that was replied differs from none. */
const REPLY = columns<{ place: number; reply: unknown[] | null; isReplied: boolean; isEnded: boolean }>({
  place: 'u.place',
  reply: 'CASE WHEN m.reply IS NOT NULL THEN jsonb_build_array(m.reply) END',
  isReplied: 'm.replied_at_ms IS NOT NULL',
  isEnded: "e.lifecycle_phase = 'terminal'",
});
export type StoredReply = RowOf<typeof REPLY>;

/** The replies to messages; those that do not exist are undefined. */
export async function readReplies(
  database: Database,
  keys: readonly RequestKey[],
): Promise<(StoredReply | undefined)[]> {
  const rows = await run(database, {
    doing: 'reading replies',
    columns: REPLY,
    text: inSchema(
      database,
      `SELECT ${REPLY.list}
       FROM unnest($1::uuid[], $2::smallint[], $3::text[]) WITH ORDINALITY u(id, part, message_id, place)
       JOIN s.ff_execution e ON e.execution_id = u.id AND e.partition_key = u.part
       JOIN s.ff_message m ON m.execution_id = u.id AND m.message_id = u.message_id`,
    ),
    params: [
      keys.map(({ uuid }) => uuid),
      keys.map(({ partition }) => partition),
      keys.map(({ messageId }) => messageId),
    ],
    repeatable: 'yes',
  });
  const byPlace = new Map(rows.map((row) => [row.place, row]));
  return keys.map((_, index) => byPlace.get(index + 1));
}

const MESSAGE = columns<ListedMessage>({
  messageId: 'message_id',
  mailbox: 'mailbox',
  sentAtMs: 'sent_at_ms',
  handedAtMs: 'handed_at_ms',
  wantsReply: 'wants_reply',
  repliedAtMs: 'replied_at_ms',
  payload: 'payload',
});

/** The messages of an execution that were not handed over, and then the last ones that were; oldest first in both. */
export function readMessages(
  database: Database,
  key: ExecutionKey,
  limit: { pending: number; handed: number },
): Promise<ListedMessage[]> {
  return run(database, {
    doing: 'reading messages',
    columns: MESSAGE,
    text: inSchema(
      database,
      `SELECT ${MESSAGE.list} FROM (
         (SELECT * FROM s.ff_message WHERE execution_id = $1 AND partition_key = $2 AND handed_at_ms IS NOT NULL
          ORDER BY handed_at_ms DESC, seq DESC LIMIT $4)
         UNION ALL
         (SELECT * FROM s.ff_message WHERE execution_id = $1 AND partition_key = $2 AND handed_at_ms IS NULL
          ORDER BY seq LIMIT $3)) m
       ORDER BY handed_at_ms IS NULL, seq`,
    ),
    params: [key.uuid, key.partition, limit.pending, limit.handed],
    repeatable: 'yes',
  });
}

export interface ContinueCall extends LeaseKey {
  /** JSON text. */
  input: string;
  /** Runs whose summaries are kept. */
  keptRuns: number;
  /** How long the ids of messages are known. */
  idMs: number;
  /** Rows of one kind that are deleted at once. */
  part: number;
}

const CONTINUED = columnsOf<Answered>()(
  'outcome',
  'repeated',
  'lifecyclePhase',
  'terminalOutcome',
  'leaseEpoch',
  'routeId',
  'dueInMs',
);

export async function continueExecution(
  database: Database,
  call: ContinueCall,
): Promise<RowOf<typeof CONTINUED>> {
  const rows = await run(database, {
    doing: 'continuing as a new run',
    columns: CONTINUED,
    text: `SELECT ${CONTINUED.list} FROM ${database.prefix}ff_continue(${LEASE}, $5::jsonb, $6::integer, $7::bigint, $8::integer)`,
    params: [...leaseParams(call), call.input, call.keptRuns, call.idMs, call.part],
    repeatable: 'yes',
  });
  return onlyRow('continuing as a new run', rows);
}

const RUN = columns<Omit<RunSummary, 'run'> & { run: string }>({
  run: 'run::text',
  beganAtMs: 'began_at_ms',
  endedAtMs: 'ended_at_ms',
  attempts: 'attempts',
  steps: 'steps',
  messages: 'messages',
});

/** The summaries of ended runs, oldest first. */
export function readRuns(database: Database, key: ExecutionKey): Promise<RowOf<typeof RUN>[]> {
  return run(database, {
    doing: 'reading runs',
    columns: RUN,
    text: inSchema(
      database,
      `SELECT ${RUN.list} FROM s.ff_run r WHERE execution_id = $1 AND partition_key = $2 ORDER BY r.run`,
    ),
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
}
