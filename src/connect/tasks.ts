/**
 * Submits tasks by their contract and reads their results with its types. The input is checked against the contract's
 * schema first, and stored as it was given.
 */
import { durationMs, type Duration } from '../contract/shape/duration.ts';
import { ExecutionFailed } from '../contract/errors.ts';
import type { ExecutionEnd, SubmitRequest, SubmitResult, WaitOptions } from '../contract/executions.ts';
import type { Json } from '../contract/json.ts';
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Executions, Streams as StreamGroup } from '../contract/connection.ts';
import type { ExecutionId } from '../contract/ids.ts';
import { list, parsed } from '../contract/shape/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { refuse, shape } from '../contract/shape/shape.ts';
import type { NoStreams, StreamKinds } from '../define/streams.ts';
import { checkInput, requestOf, type AnyTask, type Task, type TaskTerms } from '../define/task.ts';
import { withTrace, type SpanName } from '../contract/trace-context.ts';
import { revealedWait } from './revealed-wait.ts';
import { streamReaders, type StreamReaders } from './stream-readers.ts';

/** Options of one execution of a task; they replace those of its contract. */
export interface TaskSubmitOptions extends TaskTerms {
  /** Which application or tenant it belongs to. Default `default`. */
  namespace?: string;
  /** How long to wait before it becomes claimable, by the database's clock. Default: not at all. */
  delay?: Duration;
  /** Makes the submit repeatable: a second one with the same id returns `duplicate`. Default: a new id. */
  executionId?: string;
  /** Makes the submit repeatable within the namespace: a second one returns `duplicate` and the first one's id. */
  idempotencyKey?: string;
}

/** Options of one submit call. */
export interface TaskCallOptions {
  /** Submits inside your own transaction: committed or rolled back with it. */
  executor?: SqlExecutor;
  /** `off`: sends no hint from inside your transaction; workers find the work at their next poll. Default `on`. */
  hint?: 'on' | 'off';
}

/** An execution of a task, with the types of its contract. */
export interface ExecutionHandle<Out, Streams extends StreamKinds = NoStreams> {
  readonly executionId: ExecutionId;
  /** Its streams, by their names in the task's contract. */
  readonly streams: StreamReaders<Streams>;
  /**
   * Waits until it has finished and returns its result. Notified, not polled. Throws ExecutionFailed when it did not
   * succeed.
   */
  result(options?: WaitOptions): Promise<Out>;
  /** Waits until it has finished and returns its outcome, whatever it is. */
  wait(options?: WaitOptions): Promise<ExecutionEnd>;
}

/** An execution as its submit returns it. */
export interface SubmittedExecution<Out, Streams extends StreamKinds = NoStreams>
  extends ExecutionHandle<Out, Streams>, SubmitResult {
  readonly executionId: ExecutionId;
}

/** Submitting tasks, typed by their contracts. */
export interface TaskClient {
  /** Submits an execution of a task. Throws `invalid_input` when the input does not match the contract's schema. */
  submit<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    input: In,
    options?: TaskSubmitOptions & TaskCallOptions,
  ): Promise<SubmittedExecution<Out, Streams>>;
  /** Submits many executions of a task in one statement: all of them or none. At most 10,000. */
  submitMany<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    items: readonly (TaskSubmitOptions & { input: In })[],
    options?: TaskCallOptions,
  ): Promise<SubmittedExecution<Out, Streams>[]>;
  /** Returns a handle on an execution that was submitted before, here or elsewhere. */
  execution<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    executionId: string,
  ): ExecutionHandle<Out, Streams>;
}

/** The groups that are used here. */
type TaskGroups = { executions: Executions; streams: StreamGroup };

/** Most values are checked with the request. */
const taskFields = {
  lane: parsed.optional(),
  namespace: parsed.optional(),
  priority: parsed.optional(),
  tags: parsed.optional(),
  policy: parsed.optional(),
  deadline: parsed.optional(),
  delay: parsed.optional(),
  executionId: parsed.optional(),
  idempotencyKey: parsed.optional(),
};
const taskSubmitOptions = shape<TaskSubmitOptions>(taskFields);
const submitOptions = shape<TaskSubmitOptions & TaskCallOptions>({
  ...taskFields,
  executor: parsed.optional(),
  hint: parsed.optional(),
});
const itemList = list(parsed, LIMITS.submitBatch);

/** Submits carry the active span in their tags, so that the trace continues in the worker. */
export function createTaskClient(groups: TaskGroups, activeSpan: () => SpanName | undefined): TaskClient {
  const traced = (request: SubmitRequest): SubmitRequest => {
    const tags = withTrace(request.tags, activeSpan());
    return tags === undefined ? request : { ...request, tags };
  };
  return {
    async submit(task, input, options = {}) {
      submitOptions.checkKeys(options, 'options');
      const { executor, hint, ...own } = options;
      const request = traced(await toRequest(task, input, own, 'options'));
      const result = await groups.executions.submit(request, callOptions({ executor, hint }));
      return { ...handleOf(groups, task, result.executionId), ...result } as never;
    },
    async submitMany(task, items, options = {}) {
      itemList.check(items, 'items');
      items.forEach((item: unknown, index) => {
        if (typeof item !== 'object' || item === null)
          refuse(`items[${index}]`, 'must be an object with an input');
      });
      const requests = await Promise.all(
        items.map(({ input, ...own }, index) => toRequest(task, input, own, `items[${index}]`)),
      );
      const results = await groups.executions.submit(requests.map(traced), callOptions(options));
      return results.map((result) => ({ ...handleOf(groups, task, result.executionId), ...result })) as never;
    },
    execution(task, executionId) {
      checkTask(task);
      return handleOf(groups, task, executionId as ExecutionId) as never;
    },
  };
}

function callOptions({
  executor,
  hint,
}: {
  executor?: SqlExecutor | undefined;
  hint?: 'on' | 'off' | undefined;
}) {
  return { ...(executor === undefined ? {} : { executor }), ...(hint === undefined ? {} : { hint }) };
}

function checkTask(task: unknown): void {
  const { name, defaults } = (task ?? {}) as Partial<AnyTask>;
  if (typeof name === 'string' && typeof defaults === 'object' && defaults !== null) return;
  refuse('task', 'must come from task()');
}

async function toRequest(
  task: AnyTask,
  input: unknown,
  options: TaskSubmitOptions,
  field: string,
): Promise<SubmitRequest> {
  checkTask(task);
  taskSubmitOptions.check(options, field);
  await checkInput(task, input);
  const { delay, ...terms } = options;
  return {
    ...requestOf(task, input, terms, field),
    ...(delay === undefined ? {} : { delay: durationMs(delay, `${field}.delay`, LIMITS.delayMs) }),
  };
}

function handleOf(groups: TaskGroups, task: AnyTask, executionId: ExecutionId): ExecutionHandle<Json> {
  const wait = revealedWait(groups.executions, executionId);
  return {
    executionId,
    streams: streamReaders(groups.streams, executionId, (task.streams ?? {}) as StreamKinds),
    wait,
    async result(options) {
      const ended = await wait(options);
      if (ended.outcome === 'success') return ended.result;
      throw new ExecutionFailed(executionId, ended);
    },
  };
}
