/**
 * A connection as an application sees it: what it does every day at the top, everything else in groups by noun. The worker protocol is
 * not here; `workerPort` of `flowfabric/protocol` returns it.
 */
import type {
  Consumers,
  Events,
  Executions,
  Flows,
  Lanes,
  SigningKeys,
  Streams,
  Upkeep,
  Waitpoints,
  Workers,
} from '../contract/connection.ts';
import type { DeliverOutcome, SignalRequest } from '../contract/signals.ts';
import type { Closable } from '../contract/stopping.ts';
import type { FlowClient } from './flows.ts';
import type { TaskClient } from './tasks.ts';

/** FlowFabric on one database and schema, opened by `connect`. */
export interface Connection extends TaskClient, FlowClient, Closable {
  /** Sends a signal by a token. Throws `invalid_token`, for whatever is wrong with one. */
  signal(request: SignalRequest): Promise<DeliverOutcome>;
  /** Ends executions that have not ended. A running handler is aborted. */
  cancel: Executions['cancel'];
  /** Executions by their id, without a task's types. */
  readonly executions: Executions;
  /** Flows by their id, without a definition's types. */
  readonly flows: Flows;
  /** What executions write besides their result. */
  readonly streams: Streams;
  /** What happened, in commit order. */
  readonly events: Events;
  /** The consumers of events and their places. */
  readonly consumers: Consumers;
  /** Where executions wait for signals, and tokens for them. */
  readonly waitpoints: Waitpoints;
  /** The queues. */
  readonly lanes: Lanes;
  /** The registry of workers. */
  readonly workers: Workers;
  /** The keys that tokens are signed with. */
  readonly signingKeys: SigningKeys;
  /** What keeps the database in order, and its clock. */
  readonly upkeep: Upkeep;
  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}
