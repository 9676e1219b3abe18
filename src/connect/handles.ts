/**
 * A handle on one execution: everything that can be done with it by its id. The only place that makes one; handles with
 * the types of a task are this one with more in it.
 */
import type { DescribedExecution, DescribeOptions, DescribePart } from '../contract/described.ts';
import { ExecutionFailed } from '../contract/errors.ts';
import type { CancelOutcome, ExecutionEnd, OperatorNote, WaitOptions } from '../contract/executions.ts';
import type { Executions, Waitpoints } from '../contract/connection.ts';
import type { ExecutionId } from '../contract/ids.ts';
import type { Json } from '../contract/json.ts';
import type { MessageVerbs, SendOptions, SendOutcome } from '../contract/messages.ts';
import type { DeliverOutcome, SignalNote } from '../contract/signals.ts';

/** One execution. */
export interface RunHandle<Out = Json> {
  readonly executionId: ExecutionId;
  /**
   * Waits until it has finished and returns its result. Notified, not polled. Throws ExecutionFailed when it did not
   * succeed.
   */
  result(options?: WaitOptions): Promise<Out>;
  /** Waits until it has finished and returns its outcome, whatever it is. */
  wait(options?: WaitOptions): Promise<ExecutionEnd>;
  /** Cancels it, and its children with it, unless it has finished. A running handler is aborted. */
  cancel(note?: Partial<OperatorNote>): Promise<CancelOutcome>;
  /** Reads it with its lease and its last attempts, and the parts that are asked for; null when it does not exist. */
  describe<const Part extends DescribePart = never>(
    options?: DescribeOptions<Part>,
  ): Promise<DescribedExecution<Part> | null>;
  /** Sends a signal to one of its waitpoints, as an operator, without a token. Throws `not_found`. */
  signal(waitpoint: string, note?: SignalNote): Promise<DeliverOutcome>;
  /** Sends a message to one of its mailboxes. Throws `not_found`. */
  send(mailbox: string, payload?: unknown, options?: Pick<SendOptions, 'id'>): Promise<SendOutcome>;
}

/** The groups that a handle uses. */
export type HandleGroups = { executions: Executions; waitpoints: Waitpoints; messages: MessageVerbs };

/** A handle on the execution with this id, whether it exists or not. `wait`: with or without what its task redacts. */
export function runHandle(
  { executions, waitpoints, messages }: HandleGroups,
  executionId: ExecutionId,
  wait: RunHandle['wait'] = (options = {}) => executions.wait(executionId, options),
): RunHandle {
  return {
    executionId,
    wait,
    async result(options) {
      const ended = await wait(options);
      if (ended.outcome === 'success') return ended.result;
      throw new ExecutionFailed(executionId, ended);
    },
    cancel: (note = {}) => executions.cancel(executionId, { reason: 'cancelled by its handle', ...note }),
    describe: (options) => executions.describe(executionId, options),
    signal: (waitpoint, note = {}) => waitpoints.approve(executionId, waitpoint, { by: 'operator', ...note }),
    send: (mailbox, payload, options = {}) => messages.send(executionId, mailbox, payload, options),
  };
}
