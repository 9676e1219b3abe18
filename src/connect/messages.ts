/**
 * Sending messages, typed by the contract of the task that a message may start.
 */
import type { Json, Jsonified } from '../contract/json.ts';
import type {
  MessageVerbs,
  RequestOptions,
  SendOptions,
  SendOutcome,
  StartRequest,
} from '../contract/messages.ts';
import { refuse } from '../contract/shape/shape.ts';
import type { StreamKinds } from '../define/streams.ts';
import type { AnyTask, Task } from '../define/task.ts';
import { toRequest, tracedBy, type ActiveSpan, type TaskSubmitOptions } from './tasks.ts';

/** What a message starts when its key names no execution that has not finished. */
export interface Start<In, AnyOf> extends Omit<
  TaskSubmitOptions,
  'key' | 'ifExists' | 'namespace' | 'executionId' | 'idempotencyKey'
> {
  task: AnyOf;
  input: In;
}

/** An execution to submit in the commit of the message, under the key that it is sent to. */
export interface StartOption<In, AnyOf> {
  /** Submitted in the same commit, unless the key names an execution that has not finished. */
  start?: Start<In, AnyOf>;
}

/** Sending messages to executions, by their ids or their keys. */
export interface MessageClient {
  /**
   * Sends a message to a mailbox of an execution. It is kept from before the execution first waits for it, and handed
   * over in order, once. Throws `not_found`.
   */
  send<In, Parsed, Made, Out, Streams extends StreamKinds>(
    idOrKey: string,
    mailbox: string,
    payload?: unknown,
    options?: SendOptions & StartOption<In, Task<In, Parsed, Made, Out, Streams>>,
  ): Promise<SendOutcome>;
  /**
   * Sends a message and waits for the handler's `message.reply(value)`. With an id the request is repeatable: the same
   * id returns the same reply. Throws `execution_ended`, `no_reply` on a timeout, `too_many` and `not_found`.
   */
  request<
    Reply = Json,
    In = unknown,
    Parsed = unknown,
    Made = unknown,
    Out = unknown,
    Streams extends StreamKinds = StreamKinds,
  >(
    idOrKey: string,
    mailbox: string,
    payload?: unknown,
    options?: RequestOptions & StartOption<In, Task<In, Parsed, Made, Out, Streams>>,
  ): Promise<Jsonified<Reply>>;
}

type Given = Start<unknown, AnyTask>;

export function createMessageClient(verbs: MessageVerbs, activeSpan: ActiveSpan): MessageClient {
  const started = async <Options extends { start?: unknown }>(options: Options) => {
    const { start, ...rest } = options;
    return start === undefined ? rest : { ...rest, start: await startOf(start as Given, activeSpan) };
  };
  return {
    async send(idOrKey, mailbox, payload, options = {}) {
      return verbs.send(idOrKey, mailbox, payload, await started(options));
    },
    async request(idOrKey, mailbox, payload, options = {}) {
      return verbs.request(idOrKey, mailbox, payload, await started(options));
    },
  };
}

/** The key of the message is the key of the execution: the start has no name of its own. */
async function startOf(given: Given, activeSpan: ActiveSpan): Promise<StartRequest> {
  if (typeof given !== 'object' || given === null) refuse('options.start', 'must be an object with a task');
  const { task, input, ...options } = given;
  for (const name of ['key', 'ifExists', 'namespace', 'executionId', 'idempotencyKey'])
    if (name in options) refuse(`options.start.${name}`, 'follows from the key that the message is sent to');
  return tracedBy(activeSpan, await toRequest(task, input, options, 'options.start'));
}
