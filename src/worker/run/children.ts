/**
 * Children of a run. A child's id is derived from its parent's id and the name it is spawned under, so that spawning
 * again, after a crash at any moment, names the same execution and starts nothing twice.
 */
import { createHash } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { durationMs } from '../../contract/shape/duration.ts';
import { ExecutionFailed } from '../../contract/errors.ts';
import type { ExecutionEnd } from '../../contract/executions.ts';
import type { Claim, WorkerPort } from '../../contract/protocol.ts';
import { formatExecutionId, parseExecutionId, type ExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ChildRequest } from '../../contract/steps.ts';
import type { StreamKinds } from '../../define/streams.ts';
import { checkInput, type AnyTask, type Task } from '../../define/task.ts';
import type { Child, ChildOutcomes, ChildResults, SpawnOptions } from '../../define/task-context.ts';
import type { Asked, HandOver } from './hand-over.ts';
import { insist } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { TaskAborted } from '../task.ts';
import { forgiven, type Waits } from './waits.ts';

export class Children {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  readonly #waits: Waits;
  readonly #handOver: HandOver;
  readonly #own = new WeakSet<object>();
  #kept: Promise<ReadonlySet<string>> | undefined;

  constructor(port: WorkerPort, lease: HeldLease, waits: Waits, handOver: HandOver) {
    this.#port = port;
    this.#lease = lease;
    this.#waits = waits;
    this.#handOver = handOver;
  }

  async spawn<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    input: In,
    options: SpawnOptions,
  ): Promise<Child<Out>> {
    await checkInput(task, input);
    const executionId = await this.#idOf(task.name, options.key ?? '');
    const request = requestFor(task, input, options, executionId, this.#lease.claim.namespace);
    await this.#handOver.saved();
    const outcome = await insist(this.#lease, () => this.#port.spawn(this.#lease.claim, [request]));
    if (outcome.outcome !== 'spawned') {
      this.#lease.refused(outcome);
      throw new TaskAborted(this.#lease.lostBy ?? 'lease_lost');
    }
    // The worker of the child has checked its result against the task's contract.
    const result = async () => (await this.#results([executionId]))[0] as Out;
    const child = { ...this.#handle(executionId), executionId, result: () => forgiven(result) };
    this.#own.add(child);
    return child;
  }

  /** What can be done with a child besides waiting for it; by its parent, unless somebody else is named. */
  #handle(id: ExecutionId): Omit<Child<never>, 'executionId' | 'result'> {
    const [port, { claim }] = [this.#port, this.#lease];
    const during = <Value>(work: () => Promise<Value>): Promise<Value> =>
      forgiven(() =>
        this.#waits.during(async () => {
          await this.#handOver.saved();
          return work();
        }),
      );
    const by = claim.executionId;
    return {
      cancel: (note = {}) =>
        during(() => port.cancelChild(claim, id, { reason: 'cancelled by its parent', by, ...note })),
      describe: (options) => during(() => port.describeChild(claim, id, options)),
      signal: (waitpoint, note = {}) => during(() => port.signalChild(claim, id, waitpoint, { by, ...note })),
      send: (mailbox, payload, options = {}) =>
        during(() => port.sendToChild(claim, id, { ...options, mailbox, payload })),
    };
  }

  /** Of an execution begun anew, what it has kept from before; anything else is another child than then. */
  async #idOf(name: string, key: string): Promise<ExecutionId> {
    const { claim } = this.#lease;
    if (claim.generation > 0) {
      this.#kept ??= insist(this.#lease, () => this.#port.readKeptChildren(claim.executionId)).then(
        (ids) => new Set<string>(ids),
      );
      const kept = await this.#kept;
      for (let generation = claim.generation - 1; generation >= 0 && kept.size > 0; generation -= 1) {
        const id = childId(claim, generation, name, key);
        if (kept.has(id)) return id;
      }
    }
    return childId(claim, claim.generation, name, key);
  }

  /** True for children spawned by this run: it is notified of no others. */
  isOwn(child: unknown): boolean {
    return this.#own.has(child as object);
  }

  results<const Children extends readonly Child<unknown>[]>(
    children: Children,
  ): Promise<ChildResults<Children>> {
    const ids = children.map((child) => child.executionId);
    return this.#results(ids) as Promise<ChildResults<Children>>;
  }

  async settled<const Children extends readonly Child<unknown>[]>(
    children: Children,
  ): Promise<ChildOutcomes<Children>> {
    const ids = children.map((child) => child.executionId);
    const outcomes = await this.#ended(ids);
    return outcomes.map((outcome, index) => settledOf(ids[index]!, outcome)) as ChildOutcomes<Children>;
  }

  /**
   * In a run that is not the first, a child may have finished long ago: that must be known before a due sleep is
   * delivered.
   */
  async #earlierOutcome(id: ExecutionId): Promise<ExecutionEnd | undefined> {
    const { resumed, attemptIndex } = this.#lease.claim;
    if (!resumed && attemptIndex === 0) return undefined;
    const seen = await this.#port.result(id).catch(() => ({ outcome: 'pending' as const }));
    return seen.outcome === 'pending' || seen.outcome === 'not_found' ? undefined : seen;
  }

  /** Waits for all of them together. */
  async #results(ids: readonly ExecutionId[]): Promise<unknown[]> {
    const outcomes = await this.#ended(ids);
    return outcomes.map((outcome, index) => valueOf(ids[index]!, outcome));
  }

  #ended(ids: readonly ExecutionId[]): Promise<ExecutionEnd[]> {
    const which = ids.length === 1 ? ids[0]! : createHash('sha256').update(ids.join()).digest('base64url');
    const id = this.#handOver.numbered('children', which);
    return this.#handOver.take(id, (asked) => this.#outcomes(ids, asked));
  }

  async #outcomes(ids: readonly ExecutionId[], asked: Asked): Promise<ExecutionEnd[]> {
    const stop = new AbortController();
    setMaxListeners(0, stop.signal);
    const open = new Set<string>(ids);
    const earlier = ids.map((id) => this.#earlierOutcome(id));
    const outcomeOf = async (id: ExecutionId, index: number): Promise<ExecutionEnd> => {
      const outcome = (await earlier[index]) ?? (await this.#port.wait(id, { signal: stop.signal }));
      open.delete(id);
      return outcome;
    };
    const outcomes = Promise.all(ids.map(outcomeOf));
    // Rejected when the wait is stopped; nothing awaits it then.
    outcomes.catch(() => undefined);
    void Promise.all(earlier).then((seen) => seen.includes(undefined) && asked.live());
    try {
      if (ids.length > 0) await this.#waits.children(open, outcomes);
      return await outcomes;
    } finally {
      stop.abort();
    }
  }
}

function requestFor(
  task: AnyTask,
  input: unknown,
  options: SpawnOptions,
  executionId: ExecutionId,
  namespace: string,
): ChildRequest {
  const { lane, priority, tags, delay, detached } = options;
  return {
    ...task.defaults,
    namespace,
    payload: input,
    executionId,
    ...(lane === undefined ? {} : { lane }),
    ...(priority === undefined ? {} : { priority }),
    ...(tags === undefined ? {} : { tags }),
    ...(delay === undefined ? {} : { delay: durationMs(delay, 'options.delay', LIMITS.delayMs) }),
    ...(detached === undefined ? {} : { detached }),
  };
}

function valueOf(executionId: ExecutionId, outcome: ExecutionEnd): unknown {
  if (outcome.outcome === 'success') return outcome.result;
  throw new ExecutionFailed(executionId, outcome);
}

function settledOf(executionId: ExecutionId, outcome: ExecutionEnd): PromiseSettledResult<unknown> {
  if (outcome.outcome === 'success') return { status: 'fulfilled', value: outcome.result };
  return { status: 'rejected', reason: new ExecutionFailed(executionId, outcome) };
}

/**
 * A version 8 uuid whose bits are a hash, in the partition of the parent: whoever ends the child wakes the parent in
 * the same transaction. An execution that is begun anew has different children from there on; so has one that was
 * submitted again under its id after the first had been forgotten.
 */
function childId(
  { executionId, createdAtMs }: Claim,
  generation: number,
  name: string,
  key: string,
): ExecutionId {
  const bytes = createHash('sha256')
    .update(JSON.stringify([executionId, createdAtMs, generation, name, key]))
    .digest()
    .subarray(0, 16);
  bytes[6] = (bytes[6]! & 0x0f) | 0x80;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  const uuid = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join(
    '-',
  );
  return formatExecutionId(parseExecutionId(executionId).partition, uuid);
}
