/**
 * Submits tasks by their contract and reads their results with its types. The input is checked against the contract's
 * schema first, and stored as it was given.
 */
import { durationMs, type Duration } from '../contract/shape/duration.ts';
import type { IfExists, KeyOptions, SubmitRequest, SubmitResult } from '../contract/executions.ts';
import type { Json } from '../contract/json.ts';
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Streams as StreamGroup } from '../contract/connection.ts';
import type { ExecutionId } from '../contract/ids.ts';
import { list, parsed } from '../contract/shape/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { refuse, shape } from '../contract/shape/shape.ts';
import type { NoStreams, StreamKinds } from '../define/streams.ts';
import { checkInput, requestOf, type AnyTask, type Task, type TaskTerms } from '../define/task.ts';
import { withTrace, type SpanName } from '../contract/trace-context.ts';
import { revealedWait } from './revealed-wait.ts';
import { runHandle, type HandleGroups, type RunHandle } from './handles.ts';
import { streamReaders, type StreamReaders } from './stream-readers.ts';

/** Options of one execution of a task; they replace those of its contract. */
export interface TaskSubmitOptions extends TaskTerms {
  /** Which application or tenant it belongs to. Default `default`. */
  namespace?: string;
  /** How long to wait before it becomes claimable, by the database's clock. Default: not at all. */
  delay?: Duration;
  /** Makes the submit repeatable: a second one with the same id returns `duplicate`. Default: a new id. */
  executionId?: string;
  /**
   * Makes the submit repeatable within the namespace: a second one returns `duplicate` and the first one's id. Beside a
   * `key` it is meant under that key.
   */
  idempotencyKey?: string;
  /** Names the execution within its namespace: no two that are open have the same, and `byKey` finds it. */
  key?: string;
  /**
   * With `key`: what to do when it names an execution that has not finished. `attach`: return that one (`attached`), or
   * throw `key_of_another_task`. `refuse`: submit nothing (`refused`). `replace`: cancel that one in the same commit
   * (`replaced`); the old handler may run until it is aborted. Default `attach`.
   */
  ifExists?: IfExists;
}

/** Options of one submit call. */
export interface TaskCallOptions {
  /** Submits inside your own transaction: committed or rolled back with it. */
  executor?: SqlExecutor;
  /** `off`: sends no hint from inside your transaction; workers find the work at their next poll. Default `on`. */
  hint?: 'on' | 'off';
}

/** An execution of a task, with the types of its contract. */
export interface ExecutionHandle<Out, Streams extends StreamKinds = NoStreams> extends RunHandle<Out> {
  /** Its streams, by their names in the task's contract. */
  readonly streams: StreamReaders<Streams>;
}

/** Where to look for a key, and which task it should be of. */
export interface TaskKeyOptions<AnyOf> extends KeyOptions {
  /** Gives the handle the types of its contract. The key of an execution of another task is refused. */
  task?: AnyOf;
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
  /**
   * Returns a handle on the execution that a key names: the open one, otherwise the last that finished, while it is
   * kept. Null when there is none. Throws `key_of_another_task` when it is not of the given task.
   */
  byKey<In, Parsed, Made, Out = Json, Streams extends StreamKinds = NoStreams>(
    key: string,
    options?: TaskKeyOptions<Task<In, Parsed, Made, Out, Streams>>,
  ): Promise<ExecutionHandle<Out, Streams> | null>;
}

/** The groups that are used here. */
type TaskGroups = HandleGroups & { streams: StreamGroup };

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
  key: parsed.optional(),
  ifExists: parsed.optional(),
};
const taskSubmitOptions = shape<TaskSubmitOptions>(taskFields);
const submitOptions = shape<TaskSubmitOptions & TaskCallOptions>({
  ...taskFields,
  executor: parsed.optional(),
  hint: parsed.optional(),
});
const keyOptions = shape<TaskKeyOptions<unknown>>({ namespace: parsed.optional(), task: parsed.optional() });
const itemList = list(parsed, LIMITS.submitBatch);

/** The span that is active where a call is made. */
export type ActiveSpan = () => SpanName | undefined;

/** Submits carry the active span in their tags, so that the trace continues in the worker. */
export function tracedBy(activeSpan: ActiveSpan, request: SubmitRequest): SubmitRequest {
  const tags = withTrace(request.tags, activeSpan());
  return tags === undefined ? request : { ...request, tags };
}

export function createTaskClient(groups: TaskGroups, activeSpan: ActiveSpan): TaskClient {
  const traced = (request: SubmitRequest): SubmitRequest => tracedBy(activeSpan, request);
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
    async byKey(key, options = {}) {
      keyOptions.check(options, 'options');
      const { task, namespace } = options;
      if (task !== undefined) checkTask(task);
      const found = await groups.executions.byKey(key, namespace === undefined ? {} : { namespace });
      if (found === null) return null;
      if (task !== undefined && found.kind !== task.name)
        refuse('key', `names an execution of ${found.kind}, not of ${task.name}`, 'key_of_another_task');
      return handleOf(groups, task ?? NO_TASK, found.executionId) as never;
    },
  };
}

/** Stands for the task of an execution that is only known by its key. */
const NO_TASK: Pick<AnyTask, 'streams'> = { streams: undefined };

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

export async function toRequest(
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

function handleOf(
  groups: TaskGroups,
  task: Pick<AnyTask, 'streams'>,
  executionId: ExecutionId,
): ExecutionHandle<Json> {
  // Whoever has the contract of a task may see its values; a key alone is not enough.
  const wait = task === NO_TASK ? undefined : revealedWait(groups.executions, executionId);
  return {
    ...runHandle(groups, executionId, wait),
    streams: streamReaders(groups.streams, executionId, (task.streams ?? {}) as StreamKinds),
  };
}
