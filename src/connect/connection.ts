/**
 * A connection as an application sees it: everyday calls at the top, everything else in groups by noun. The worker
 * protocol is separate; `workerPort` of `flowfabric/protocol` returns it.
 */
import type {
  Consumers,
  Events,
  Executions,
  Flows,
  Lanes,
  SigningKeys,
  Streams,
  Topics,
  Upkeep,
  Waitpoints,
  Workers,
} from '../contract/connection.ts';
import type { DeliverOutcome, SignalRequest } from '../contract/signals.ts';
import type { Closable } from '../contract/stopping.ts';
import type { FlowClient } from './flows.ts';
import type { MessageClient } from './messages.ts';
import type { TaskClient } from './tasks.ts';

/** FlowFabric on one database and schema, opened by `connect`. */
export interface Connection extends TaskClient, FlowClient, MessageClient, Closable {
  /** Sends a signal with a token. Throws `invalid_token`, whatever is wrong with the token. */
  signal(request: SignalRequest): Promise<DeliverOutcome>;
  /**
   * Publishes to a topic: executions that wait for it (`ctx.topic`) resume, and the latest is kept for those who wait
   * later.
   */
  publish: Topics['publish'];
  /** Cancels executions that have not finished. A running handler is aborted. */
  cancel: Executions['cancel'];
  /** Executions by their id, without a task's types. */
  readonly executions: Executions;
  /** Flows by their id, without a definition's types. */
  readonly flows: Flows;
  /** The output of executions: frames and summary documents. */
  readonly streams: Streams;
  /** The event feed: everything that happened, in commit order. */
  readonly events: Events;
  /** The consumers of the event feed and their positions. */
  readonly consumers: Consumers;
  /** Where executions wait for signals, and the tokens that allow sending them. */
  readonly waitpoints: Waitpoints;
  /** The queues. */
  readonly lanes: Lanes;
  /** The registry of workers. */
  readonly workers: Workers;
  /** The keys that tokens are signed with. */
  readonly signingKeys: SigningKeys;
  /** The reconcilers that keep the database in order, and its clock. */
  readonly upkeep: Upkeep;
  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}
