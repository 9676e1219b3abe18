/**
 * Sends messages to executions, waits for the replies to requests, and stores the replies of handlers.
 */
import { randomUUID } from 'node:crypto';
import type { LastOf } from '../../contract/described.ts';
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId, type ParsedExecutionId } from '../../contract/ids.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type {
  ListedMessage,
  ReplyOutcome,
  ReplyRequest,
  RequestOptions,
  SendOptions,
  SendOutcome,
} from '../../contract/messages.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { durationMs } from '../../contract/shape/duration.ts';
import { parsed, string } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import { encodeJson } from '../../model/json.ts';
import type { Database } from '../database/database.ts';
import { announce } from '../kit/announce.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import type { EngineContext } from '../kit/context.ts';
import { Deliveries } from '../kit/deliveries.ts';
import {
  readMessages,
  replyToMessage,
  sendMessage,
  sendMessages,
  type MessageCall,
  type SentAnswer,
} from './messages.sql.ts';

const mailboxName = string(LIMITS.mailboxBytes);
const messageId = string(LIMITS.messageIdBytes);
const sendOptions = shape<SendOptions>({ id: messageId.optional() });
const requestOptions = shape<RequestOptions>({ id: messageId.optional(), timeout: parsed.optional() });
const replyRequest = shape<ReplyRequest>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0),
  messageId,
  value: parsed.optional(),
});

const MAILBOX = { maxMessages: LIMITS.messages, maxBytes: LIMITS.messagesBytes };

export type MessageDeliveries = Deliveries<MessageCall, SentAnswer>;

export function createMessageDeliveries(database: Database): MessageDeliveries {
  return new Deliveries({
    together: (calls) => sendMessages(database, calls, MAILBOX),
    alone: (call) => sendMessage(database, call, MAILBOX),
    keyOf: ({ uuid, messageId: id }) => `${uuid}/${id}`,
  });
}

/** Where messages are sent and announced. */
export interface Sending {
  context: EngineContext;
  messages: MessageDeliveries;
}

/** The execution that is meant. */
function targetOf(executionId: string): ParsedExecutionId {
  return parseExecutionId(executionId);
}

export async function send(
  sending: Sending,
  executionId: string,
  mailbox: string,
  payload: unknown,
  options: SendOptions,
): Promise<SendOutcome> {
  const { id } = sendOptions.check(options, 'options');
  const call = callOf(executionId, mailbox, payload, id);
  const answer = await deliver(sending, { ...call, isRequest: false });
  // An id that nobody else knows: this very call was repeated after its response was lost.
  const outcome = answer.outcome === 'duplicate' && id === undefined ? 'sent' : answer.outcome;
  switch (outcome) {
    case 'sent':
    case 'resumed':
      return { outcome: 'sent', messageId: call.messageId };
    case 'duplicate':
      return { outcome, messageId: call.messageId };
    case 'not_active':
      return { outcome, terminalOutcome: answer.terminalOutcome };
    case 'too_many':
      return { outcome };
    default:
      throw notFound();
  }
}

/** The same id waits for the reply to the same message. */
export async function requestReply(
  sending: Sending,
  executionId: string,
  mailbox: string,
  payload: unknown,
  options: RequestOptions,
): Promise<Json> {
  const { id, timeout = LIMITS.requestMs } = requestOptions.check(options, 'options');
  const timeoutMs = durationMs(timeout, 'options.timeout', LIMITS.requestLongestMs);
  const call = callOf(executionId, mailbox, payload, id);
  const { outcome } = await deliver(sending, { ...call, isRequest: true });
  switch (outcome) {
    case 'not_found':
      throw notFound();
    case 'not_active':
      throw new EngineError('execution_ended', 'The execution has finished.', { field: 'executionId' });
    case 'too_many':
      throw new EngineError(
        'too_many',
        `The execution has ${LIMITS.messages} messages, or ${LIMITS.messagesBytes} bytes of them, that it has not received.`,
      );
    default:
      return sending.context.replies.wait(call, timeoutMs);
  }
}

function callOf(
  executionId: string,
  mailbox: string,
  payload: unknown,
  id: string = randomUUID(),
): Omit<MessageCall, 'isRequest'> {
  return {
    ...targetOf(executionId),
    mailbox: mailboxName.check(mailbox, 'mailbox'),
    messageId: id,
    payload: encodeJson(payload ?? null, 'payload', LIMITS.messageBytes)!,
  };
}

async function deliver({ context, messages }: Sending, call: MessageCall): Promise<SentAnswer> {
  const answer = await messages.deliver(call);
  announce(context, [{ ...answer, uuid: call.uuid }]);
  return answer;
}

function notFound(): EngineError {
  return new EngineError('not_found', 'There is no such execution.', { field: 'executionId' });
}

export async function reply(
  context: EngineContext,
  lease: LeaseRef,
  given: ReplyRequest,
): Promise<ReplyOutcome> {
  const { name, key, messageId: id, value } = replyRequest.check(given, 'request');
  const call = {
    ...leaseKey(lease, 'lease'),
    name,
    key,
    messageId: id,
    value: encodeJson(value ?? null, 'request.value', LIMITS.messageBytes)!,
  };
  const answer = await replyToMessage(context.database, call);
  announce(context, [{ ...answer, uuid: call.uuid }]);
  return answer.outcome === 'replied' ? { outcome: 'replied' } : toRefusal(answer);
}

/** For `describe`: what nobody has received yet, and before that the last ones that were handed over. */
export async function listMessages(
  context: EngineContext,
  executionId: string,
): Promise<LastOf<ListedMessage>> {
  const most = LIMITS.describedMessages;
  const limit = { pending: most + 1, handed: most + 1 };
  const all = await readMessages(context.database, parseExecutionId(executionId), limit);
  const pending = all.filter(({ handedAtMs }) => handedAtMs === null).slice(0, most);
  const handed = all.filter(({ handedAtMs }) => handedAtMs !== null);
  const left = Math.max(0, handed.length - (most - pending.length));
  const items = [...handed.slice(left), ...pending];
  return { items, truncated: items.length < all.length };
}
