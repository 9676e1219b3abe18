/**
 * What a handler gets from its mailboxes. Implemented in worker/run/messages.ts.
 */
import type { Json, Storable } from '../contract/json.ts';
import type { Duration } from '../contract/shape/duration.ts';
import type { Schema } from '../contract/shape/schema.ts';

/** A message that was handed over. Every later run gets the same message at the same place. */
export interface Message<Payload = Json> {
  readonly id: string;
  readonly mailbox: string;
  readonly payload: Payload;
  readonly sentAtMs: number;
  /** Whether its sender waits for a reply. */
  readonly wantsReply: boolean;
  /** Replies to the sender's `connection.request`. The first reply stays, whatever a later run replies. */
  reply<Value>(value: Storable<Value>): Promise<void>;
}

/** Options of receiving one message. */
export interface ReceiveOptions<Payload = Json> {
  /** Parses the payload. A message that does not match is received nevertheless, and `invalid_input` is thrown. */
  schema?: Schema<unknown, Payload>;
  /** How long to wait, counted from the first call; then `undefined` is returned. Default: for ever. */
  timeout?: Duration;
}

/** Options of an inbox. */
export interface InboxOptions<Payload = Json> {
  /** Parses payloads. A message that does not match is received nevertheless, and `invalid_input` is thrown. */
  schema?: Schema<unknown, Payload>;
  /** The loop ends when no message came for this long. Default: never. */
  idle?: Duration;
}

/** The messages of a mailbox, in the order they were sent: `for await (const message of ctx.inbox('commands'))`. */
export interface Inbox<Payload = Json> extends AsyncIterable<Message<Payload>> {
  /**
   * Whether this run has received half as many messages as a run can, in all its mailboxes. Then it is time to
   * `return ctx.continueAs(input)`: at the limit the execution stays suspended.
   */
  readonly shouldContinue: boolean;
}
