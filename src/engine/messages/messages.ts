/**
 * Sends messages to executions, waits for the replies to requests, and stores the replies of handlers.
 */
import { randomUUID } from 'node:crypto';
import type { LastOf } from '../../contract/described.ts';
import { EngineError } from '../../contract/errors.ts';
import { formatExecutionId, parseExecutionId } from '../../contract/ids.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type {
  ListedMessage,
  ReplyOutcome,
  ReplyRequest,
  RequestOptions,
  SendOptions,
  SendOutcome,
  Starting,
} from '../../contract/messages.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import type { Redaction } from '../../contract/redaction.ts';
import { durationMs } from '../../contract/shape/duration.ts';
import { parsed, string } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import { encodeJson } from '../../model/json.ts';
import { shownValue } from '../../model/redaction.ts';
import { announce } from '../kit/announce.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import type { EngineContext } from '../kit/context.ts';
import { namespaceName } from '../kit/kinds.ts';
import { readMessages, replyToMessage } from './messages.sql.ts';
import { notFound, sendTo, type Message, type Sending } from './sending.ts';

const mailboxName = string(LIMITS.mailboxBytes);
const messageId = string(LIMITS.messageIdBytes);
const fields = { id: messageId.optional(), namespace: namespaceName.optional(), start: parsed.optional() };
const sendOptions = shape<SendOptions & Starting>(fields);
const requestOptions = shape<RequestOptions & Starting>({ ...fields, timeout: parsed.optional() });
const replyRequest = shape<ReplyRequest>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0),
  messageId,
  value: parsed.optional(),
});

export async function send(
  sending: Sending,
  idOrKey: string,
  mailbox: string,
  payload: unknown,
  options: SendOptions & Starting,
): Promise<SendOutcome> {
  const { id, namespace, start } = sendOptions.check(options, 'options');
  const message = { ...messageOf(mailbox, payload, id), isRequest: false };
  const { answer, key, started } = await sendTo(sending, { idOrKey, namespace, start }, message);
  const named = {
    messageId: message.messageId,
    executionId: formatExecutionId(key.partition, key.uuid),
  };
  // An id that nobody else knows: this very call was repeated after its response was lost.
  const outcome = answer.outcome === 'duplicate' && id === undefined ? 'sent' : answer.outcome;
  switch (outcome) {
    case 'sent':
    case 'resumed':
      return { outcome: started ? 'started' : 'sent', ...named };
    case 'duplicate':
      return { outcome, ...named };
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
  idOrKey: string,
  mailbox: string,
  payload: unknown,
  options: RequestOptions & Starting,
): Promise<Json> {
  const { id, namespace, start, timeout = LIMITS.requestMs } = requestOptions.check(options, 'options');
  const timeoutMs = durationMs(timeout, 'options.timeout', LIMITS.requestLongestMs);
  const message = { ...messageOf(mailbox, payload, id), isRequest: true };
  const { answer, key } = await sendTo(sending, { idOrKey, namespace, start }, message);
  switch (answer.outcome) {
    case 'not_found':
      throw notFound();
    case 'not_active':
      throw new EngineError('execution_ended', 'The execution has finished.', { field: 'idOrKey' });
    case 'too_many':
      throw new EngineError(
        'too_many',
        `The execution has ${LIMITS.messages} messages, or ${LIMITS.messagesBytes} bytes of them, that it has not received.`,
      );
    default:
      return sending.context.replies.wait({ ...key, messageId: message.messageId }, timeoutMs);
  }
}

function messageOf(mailbox: string, payload: unknown, id: string = randomUUID()): Omit<Message, 'isRequest'> {
  return {
    mailbox: mailboxName.check(mailbox, 'mailbox'),
    messageId: id,
    payload: encodeJson(payload ?? null, 'payload', LIMITS.messageBytes)!,
  };
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

/** What it says is hidden like any other value of its execution. */
export function shownMessage(message: ListedMessage, redaction: Redaction | null): ListedMessage {
  return redaction === null ? message : { ...message, payload: shownValue(message.payload, redaction) };
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
