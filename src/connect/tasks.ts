/**
 * Submits tasks by their contract and reads their results with its types. What is submitted is checked against the
 * contract's schema first; what is stored is the input as it was given.
 */
import { durationMs, type Duration } from '../contract/duration.ts';
import { ExecutionFailed } from '../contract/errors.ts';
import type { ExecutionEnd, SubmitRequest, SubmitResult, WaitOptions } from '../contract/executions.ts';
import type { Json } from '../contract/json.ts';
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Executions, Streams as StreamGroup } from '../contract/connection.ts';
import type { ExecutionId } from '../contract/ids.ts';
import { list, parsed } from '../contract/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { refuse, shape } from '../contract/shape.ts';
import type { NoStreams, StreamKinds } from '../define/streams.ts';
import { checkInput, requestOf, type AnyTask, type Task, type TaskTerms } from '../define/task.ts';
import { withTrace, type SpanName } from '../contract/trace-context.ts';
import { streamReaders, type StreamReaders } from './stream-readers.ts';

/** What one submit of a task may say differently from its contract. */
export interface TaskSubmitOptions extends TaskTerms {
  namespace?: string;
  /** Start no sooner than this long from now, by the database's clock. */
  delay?: Duration;
  /** A given id makes the submit repeatable: the second one answers `duplicate`. */
  executionId?: string;
  /** So does a key, within the namespace: the second submit answers `duplicate` and the first one's id. */
  idempotencyKey?: string;
}

/** How the call is made, for all that is submitted by it. */
export interface TaskCallOptions {
  /** Submit inside your own transaction: committed or rolled back with it. */
  executor?: SqlExecutor;
  hint?: 'on' | 'off';
}

/** An execution of a task, with the types of its contract. */
export interface ExecutionHandle<Out, Streams extends StreamKinds = NoStreams> {
  readonly executionId: ExecutionId;
  /** What it writes besides its result, by the names of the task's contract. */
  readonly streams: StreamReaders<Streams>;
  /** Waits for it to end; notified, not polling. Throws ExecutionFailed when there is no result. */
  result(options?: WaitOptions): Promise<Out>;
  /** Waits for it to end, however that is. */
  wait(options?: WaitOptions): Promise<ExecutionEnd>;
}

/** The same, from the submit that made it. */
export interface SubmittedExecution<Out, Streams extends StreamKinds = NoStreams>
  extends ExecutionHandle<Out, Streams>, SubmitResult {
  readonly executionId: ExecutionId;
}

/** What a task's submitter does, typed by the task's contract. */
export interface TaskClient {
  /** Submits an execution of a task. Its input is checked against the contract first. */
  submit<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    input: In,
    options?: TaskSubmitOptions & TaskCallOptions,
  ): Promise<SubmittedExecution<Out, Streams>>;
  /** All of them in one statement: all are submitted, or none. */
  submitMany<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    items: readonly (TaskSubmitOptions & { input: In })[],
    options?: TaskCallOptions,
  ): Promise<SubmittedExecution<Out, Streams>[]>;
  /** An execution of the task that was submitted before, here or elsewhere. */
  execution<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    executionId: string,
  ): ExecutionHandle<Out, Streams>;
}

/** The groups that are used here. */
type TaskGroups = { executions: Executions; streams: StreamGroup };

/** Most of it is checked as the request that it becomes. */
const taskSubmitOptions = shape<TaskSubmitOptions>({
  lane: parsed.optional(),
  namespace: parsed.optional(),
  priority: parsed.optional(),
  tags: parsed.optional(),
  policy: parsed.optional(),
  deadline: parsed.optional(),
  delay: parsed.optional(),
  executionId: parsed.optional(),
  idempotencyKey: parsed.optional(),
});
const itemList = list(parsed, LIMITS.submitBatch);

/** What is submitted while a span is active carries it along, so that the trace can go on where the work is done. */
export function createTaskClient(groups: TaskGroups, activeSpan: () => SpanName | undefined): TaskClient {
  const traced = (request: SubmitRequest): SubmitRequest => {
    const tags = withTrace(request.tags, activeSpan());
    return tags === undefined ? request : { ...request, tags };
  };
  return {
    async submit(task, input, options = {}) {
      if (typeof options !== 'object' || options === null) refuse('options', 'must be an object');
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
  refuse('task', 'must be a task, as task() makes one');
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
    ...(delay === undefined ? {} : { delayMs: durationMs(delay, `${field}.delay`, LIMITS.delayMs) }),
  };
}

function handleOf(groups: TaskGroups, task: AnyTask, executionId: ExecutionId): ExecutionHandle<Json> {
  const wait = (options: WaitOptions = {}) => groups.executions.wait(executionId, options);
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
