/**
 * Where a message goes: to an execution by its id, to the one that a key names, or to one that is submitted under the key
 * in the same commit.
 */
import { EngineError } from '../../contract/errors.ts';
import { looksLikeId, parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { StartRequest } from '../../contract/messages.ts';
import { refuse } from '../../contract/shape/shape.ts';
import type { Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { byKey } from '../executions/keys.ts';
import { checkOne, type DefaultPolicy } from '../executions/submitting/check-request.ts';
import { knowingRoutes } from '../executions/submitting/interning.ts';
import { toCall } from '../executions/submitting/submit-call.ts';
import { toAnswers } from '../executions/submitting/submit.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { Deliveries } from '../kit/deliveries.ts';
import {
  sendMessage,
  sendMessages,
  startAndSend,
  type MessageCall,
  type SentAnswer,
} from './messages.sql.ts';

const MAILBOX = { maxMessages: LIMITS.messages, maxBytes: LIMITS.messagesBytes };
/** How often a key is looked up again because the execution it named has finished. */
const KEY_TRIES = 5;

export type MessageDeliveries = Deliveries<MessageCall, SentAnswer>;
export type Message = Omit<MessageCall, keyof ExecutionKey>;

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
  defaultPolicy: DefaultPolicy;
}

/** What a sender names. */
export interface Target {
  idOrKey: string;
  namespace: string | undefined;
  start: StartRequest | undefined;
}

export interface Sent {
  key: ExecutionKey;
  answer: Pick<SentAnswer, 'outcome' | 'terminalOutcome'>;
  /** The execution was submitted with it. */
  started: boolean;
}

export async function sendTo(sending: Sending, target: Target, message: Message): Promise<Sent> {
  const { idOrKey, namespace, start } = target;
  if (typeof idOrKey !== 'string') refuse('idOrKey', 'must be a string');
  if (!looksLikeId(idOrKey))
    return start === undefined
      ? sendToKey(sending, target, message)
      : startUnder(sending, target, start, message);
  if (start !== undefined) refuse('options.start', 'needs a key to submit it under, not an id');
  if (namespace !== undefined) refuse('options.namespace', 'is that of a key, not of an id');
  return deliver(sending, parseExecutionId(idOrKey), message);
}

/** The execution of a key may finish, and another may get the key, before the message arrives. */
async function sendToKey(sending: Sending, { idOrKey, namespace }: Target, message: Message): Promise<Sent> {
  let sent: Sent | undefined;
  for (let tries = 0; tries < KEY_TRIES; tries += 1) {
    const found = await byKey(sending.context, idOrKey, namespace === undefined ? {} : { namespace });
    if (found === null) throw notFound();
    const key = parseExecutionId(found.executionId);
    if (sent?.key.uuid === key.uuid) return sent;
    sent = await deliver(sending, key, message);
    if (sent.answer.outcome !== 'not_active') return sent;
  }
  return sent!;
}

async function startUnder(
  { context, defaultPolicy }: Sending,
  { idOrKey, namespace = 'default' }: Target,
  start: StartRequest,
  message: Message,
): Promise<Sent> {
  const entry = checkOne({ ...start, key: idOrKey, namespace, ifExists: 'attach' }, defaultPolicy);
  const send = async (call: ReturnType<typeof toCall>) => [
    await startAndSend(context.database, call, { ...message, key: idOrKey }, MAILBOX),
  ];
  const [answer] = await knowingRoutes(context, toCall([entry]), send);
  const { uuid, sent, resumedRouteId: routeId, resumedDueInMs: dueInMs } = answer!;
  announce(context, [...toAnswers([answer!], [entry]), { outcome: sent, uuid, routeId, dueInMs }]);
  return {
    key: { uuid, partition: entry.partition },
    answer: { outcome: sent, terminalOutcome: 'none' },
    started: answer!.outcome === 'submitted',
  };
}

async function deliver(
  { context, messages }: Sending,
  { uuid, partition }: ExecutionKey,
  message: Message,
): Promise<Sent> {
  const answer = await messages.deliver({ ...message, uuid, partition });
  announce(context, [{ ...answer, uuid }]);
  return { key: { uuid, partition }, answer, started: false };
}

export function notFound(): EngineError {
  return new EngineError('not_found', 'There is no such execution.', { field: 'idOrKey' });
}
