/**
 * Messages: said to one execution, kept in its mailboxes, and handed over to its handler in order, each once.
 */
import type { SubmitRequest } from './executions.ts';
import type { ExecutionId } from './ids.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { Json, Jsonified } from './json.ts';
import type { Duration } from './shape/duration.ts';
import type { StepKey } from './steps.ts';
import type { TerminalOutcome } from './states.ts';

/** Options of sending a message. */
export interface SendOptions {
  /** Makes the send repeatable: a second message with the same id returns `duplicate`. Default: a new id. */
  id?: string;
  /** Of the key, when the execution is named by one. Default `default`. */
  namespace?: string;
}

/** An execution to submit under the key that a message is sent to. The key says what it is called and where it is. */
export type StartRequest = Omit<
  SubmitRequest,
  'key' | 'ifExists' | 'namespace' | 'executionId' | 'idempotencyKey'
>;

/** What is submitted, in the commit of the message, unless the key names an execution that has not finished. */
export interface Starting {
  start?: StartRequest;
}

/** A message and the mailbox it is for. */
export interface OutgoingMessage extends Pick<SendOptions, 'id'> {
  mailbox: string;
  payload?: unknown;
}

/** The outcome of sending a message. */
export type SendOutcome =
  /** It is kept until the execution receives it. `started`: the execution was submitted in the same commit. */
  | { outcome: 'sent' | 'started'; messageId: string; executionId: ExecutionId }
  /** A message with this id was sent before. */
  | { outcome: 'duplicate'; messageId: string; executionId: ExecutionId }
  /** The execution has finished. */
  | { outcome: 'not_active'; terminalOutcome: TerminalOutcome }
  /** The execution has reached its limit of messages that it has not received. */
  | { outcome: 'too_many' };

/** Options of a request. */
export interface RequestOptions extends SendOptions {
  /** How long to wait for the reply. Default 30 seconds. The message stays: the same id waits again. */
  timeout?: Duration;
}

/** The reply to a message that was handed over to a wait of the execution. */
export interface ReplyRequest extends Required<StepKey> {
  messageId: string;
  value?: unknown;
}

/** `replied`: the reply is stored, or an earlier one was. */
export type ReplyOutcome = { outcome: 'replied' } | LeaseRefusal;

/** `repeated`: the same lease made the same call before. */
export type ContinueOutcome = { outcome: 'continued'; repeated: boolean } | LeaseRefusal;

/** What is kept of a run that continued as a new one. */
export interface RunSummary {
  /** From 1. */
  run: bigint;
  beganAtMs: number;
  endedAtMs: number;
  attempts: number;
  steps: number;
  /** Messages that it received. */
  messages: number;
}

/** A message as it is shown. */
export interface ListedMessage {
  messageId: string;
  mailbox: string;
  sentAtMs: number;
  /** Null while it was not handed over. */
  handedAtMs: number | null;
  /** Whether its sender waits for a reply. */
  wantsReply: boolean;
  repliedAtMs: number | null;
  /** Null once it was handed over: the step that received it has it then. */
  payload: Json;
}

/** Sending messages to executions, by their ids or their keys. */
export interface MessageVerbs {
  /**
   * Sends a message to a mailbox of an execution. It is kept from before the execution first waits for it, and handed
   * over in order, once. Throws `not_found`.
   */
  send(
    idOrKey: string,
    mailbox: string,
    payload?: unknown,
    options?: SendOptions & Starting,
  ): Promise<SendOutcome>;
  /**
   * Sends a message and waits for the handler's `message.reply(value)`. With an id the request is repeatable: the same
   * id returns the same reply. Throws `execution_ended`, `no_reply` on a timeout, `too_many` and `not_found`.
   */
  request<Reply = Json>(
    idOrKey: string,
    mailbox: string,
    payload?: unknown,
    options?: RequestOptions & Starting,
  ): Promise<Jsonified<Reply>>;
}
