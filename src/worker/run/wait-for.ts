/**
 * Waits for signals: the handler's options are checked and turned into a request to the engine, and the payload is
 * returned as its schema parses it. When the worker is freed meanwhile is decided in waits.ts.
 */
import { atLeast } from '../../define/conditions.ts';
import { durationMs } from '../../contract/shape/duration.ts';
import type { Json } from '../../contract/json.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { choice, parsed } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, faultAt, refuse, shape } from '../../contract/shape/shape.ts';
import {
  TIMEOUT_BEHAVIOURS,
  WAIT_REASONS,
  type Signal,
  type SignalCondition,
  type WaitEnd,
  type Waitpoint,
  type WaitpointRequest,
  type WaitRequest,
} from '../../contract/signals.ts';
import { parseWith, type Schema } from '../../contract/shape/schema.ts';
import { waitpointsOf } from '../../model/conditions.ts';
import type {
  PayloadSchema,
  WaitForOptions,
  WaitpointOptions,
  WaitResult,
} from '../../define/task-context.ts';
import { stepOutcomeId, type HandOver } from './hand-over.ts';
import { insist } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import type { StepBook } from './step-book.ts';
import { subjectOf, TaskAborted } from '../task.ts';
import type { Waits } from './waits.ts';

/** The request to the engine for one wait. */
export interface SignalWait {
  request: WaitRequest & { key: string };
  waitpoints: readonly WaitpointRequest[];
}

const waitForOptions = shape<WaitForOptions<unknown>>({
  schema: parsed.optional(),
  timeout: parsed.optional(),
  onTimeout: choice(TIMEOUT_BEHAVIOURS).optional(),
  by: parsed.optional(),
  match: parsed.optional(),
  reason: choice(WAIT_REASONS).optional(),
  resumeDelay: parsed.optional(),
}).and(({ timeout, onTimeout }) =>
  onTimeout !== undefined && timeout === undefined
    ? faultAt('.onTimeout', fault('needs a timeout'))
    : undefined,
);
const waitpointOptions = shape<WaitpointOptions<unknown>>({
  schema: parsed.optional(),
  expiresIn: parsed.optional(),
});
const SCHEMA_TARGET = 'draft-2020-12';

/** The parts of a run that a wait uses. */
interface WaitParts {
  book: StepBook;
  waits: Waits;
  handOver: HandOver;
}

/** Waits until a wait has ended, unless it did in an earlier run; the handler gets what `read` makes of that. */
export async function awaitEnd<Value>(
  { book, waits, handOver }: WaitParts,
  wait: SignalWait,
  read: (end: WaitEnd) => Promise<Value>,
): Promise<Value> {
  const { name, key } = wait.request;
  book.take('wait', name, key);
  const askedAt = performance.now();
  return handOver.take(stepOutcomeId(name, key), async (asked) => {
    const past = await waits.busyWith(async () => {
      const stored = await book.find('wait', name, key);
      if (stored?.end === undefined || stored.end === null) await asked.begin();
      else asked.endedAtMs = stored.end.endedAtMs;
      return stored?.end ?? null;
    });
    const end = past ?? (await waits.signals(wait, askedAt));
    return waits.busyWith(() => read(end));
  });
}

export class Signals {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  readonly #book: StepBook;
  readonly #waits: Waits;
  readonly #handOver: HandOver;
  /** The schemas of the waitpoints that this run has opened. */
  readonly #schemas = new WeakMap<object, WaitpointOptions<unknown>['schema']>();

  constructor(port: WorkerPort, lease: HeldLease, book: StepBook, waits: Waits, handOver: HandOver) {
    this.#port = port;
    this.#lease = lease;
    this.#book = book;
    this.#waits = waits;
    this.#handOver = handOver;
  }

  async waitFor<Payload>(
    name: string,
    key: string,
    options: WaitForOptions<Payload> = {},
  ): Promise<WaitResult<Payload>> {
    return this.explaining(`waitFor('${name}')`, async () => {
      const wait = signalWaitOf(name, key, options);
      return this.ended(wait, (end) => resultOf(end, codeOf(options.schema)));
    });
  }

  /** What a wait returns, made of how it ended, when it is its turn. */
  ended<Result>(wait: SignalWait, toResult: (end: WaitEnd) => Promise<Result>): Promise<Result> {
    return awaitEnd({ book: this.#book, waits: this.#waits, handOver: this.#handOver }, wait, toResult);
  }

  /** A waitpoint that this run has opened; undefined for anything else. */
  opened(at: unknown): Waitpoint<unknown> | undefined {
    return this.#schemas.has(at as object) ? (at as Waitpoint<unknown>) : undefined;
  }

  /** The options of a wait at a waitpoint that this run has opened, with its schema. */
  optionsAt(
    waitpoint: Waitpoint<unknown>,
    key: string,
    options: WaitForOptions<unknown> | undefined,
  ): WaitForOptions<unknown> {
    const call = `${subjectOf(this.#lease.claim)}: ctx.waitFor(waitpoint)`;
    if (key !== '' || options?.schema !== undefined) {
      const sentence = `${call} takes neither a key nor a schema: those of the waitpoint are used.`;
      throw new EngineError('invalid_step', sentence, { field: 'options' });
    }
    const schema = this.#schemas.get(waitpoint);
    return { ...options, ...(schema === undefined ? {} : { schema }) };
  }

  async createWaitpoint<Payload>(
    name: string,
    options: WaitpointOptions<Payload> = {},
  ): Promise<Waitpoint<Payload>> {
    return this.explaining(`createWaitpoint('${name}')`, async () => {
      const request = waitpointOf(name, options);
      const create = async (): Promise<Waitpoint<Payload>> => {
        await this.#handOver.saved();
        const outcome = await insist(this.#lease, () =>
          this.#port.createWaitpoint(this.#lease.claim, request),
        );
        if (outcome.outcome === 'created') {
          this.#schemas.set(outcome.waitpoint, options.schema);
          return outcome.waitpoint as Waitpoint<Payload>;
        }
        this.#lease.refused(outcome);
        throw new TaskAborted(this.#lease.lostBy ?? 'lease_lost');
      };
      const id = this.#handOver.numbered('waitpoint', name);
      return this.#handOver.take(id, () => this.#waits.during(create));
    });
  }

  /** Adds the execution and the call to an error of the engine. */
  async explaining<Value>(call: string, work: () => Promise<Value>): Promise<Value> {
    const subject = subjectOf(this.#lease.claim);
    try {
      return await work();
    } catch (error) {
      if (!isEngineError(error) || error.message.startsWith(subject)) throw error;
      const { code, field = 'options', message, cause } = error;
      throw new EngineError(code, `${subject}: ctx.${call}: ${message}`, { field, cause });
    }
  }
}

function signalWaitOf(name: string, key: string, options: WaitForOptions<unknown>): SignalWait {
  const { timeout, onTimeout, reason, resumeDelay } = waitForOptions.check(options, 'options');
  const own = key === '' ? name : `${name}:${key}`;
  const condition = plainCondition(byOf(options), own, 1);
  const schema = jsonSchemaOf(options.schema);
  return {
    request: {
      name,
      key,
      condition,
      ...(timeout === undefined ? {} : { timeoutMs: durationMs(timeout, 'options.timeout', LIMITS.delayMs) }),
      ...(onTimeout === undefined ? {} : { onTimeout }),
      ...(reason === undefined ? {} : { reason }),
      ...(resumeDelay === undefined
        ? {}
        : { resumeDelayMs: durationMs(resumeDelay, 'options.resumeDelay', LIMITS.delayMs) }),
    },
    waitpoints:
      schema === undefined ? [] : waitpointsOf(condition).map((waitpoint) => ({ name: waitpoint, schema })),
  };
}

function waitpointOf(name: string, options: WaitpointOptions<unknown>): WaitpointRequest {
  const { expiresIn } = waitpointOptions.check(options, 'options');
  const schema = jsonSchemaOf(options.schema);
  return {
    name,
    ...(schema === undefined ? {} : { schema }),
    ...(expiresIn === undefined
      ? {}
      : { expiresInMs: durationMs(expiresIn, 'options.expiresIn', LIMITS.tokenMs) }),
  };
}

function byOf({ by, match }: WaitForOptions<unknown>): SignalCondition {
  if (match === undefined) return by ?? atLeast(1);
  if (by !== undefined) refuse('options.match', 'cannot be combined with by; use by with .named(…)');
  return atLeast(1).named(match);
}

/** Without the builders; a leaf without waitpoints uses the wait's own. */
function plainCondition(condition: SignalCondition, own: string, depth: number): SignalCondition {
  if (depth > LIMITS.conditionDepth) {
    refuse('options.by', `is nested deeper than ${LIMITS.conditionDepth}`);
  }
  if (condition?.kind === 'count' && Array.isArray(condition.waitpoints)) {
    const { kind, n, by, waitpoints, match } = condition;
    const names = waitpoints.length === 0 ? [own] : [...waitpoints];
    return { kind, n, by, waitpoints: names, ...(match === undefined ? {} : { match }) };
  }
  if ((condition?.kind === 'all' || condition?.kind === 'any') && Array.isArray(condition.of)) {
    return { kind: condition.kind, of: condition.of.map((one) => plainCondition(one, own, depth + 1)) };
  }
  refuse('options.by', 'must be made by atLeast(…), allOf(…) or anyOf(…)');
}

/** The schema's code, which turns payloads into what the handler gets; a plain JSON Schema has none. */
function codeOf<Payload>(schema: WaitForOptions<Payload>['schema']): Schema<unknown, Payload> | undefined {
  return schema !== undefined && '~standard' in schema ? (schema as PayloadSchema<Payload>) : undefined;
}

function jsonSchemaOf(schema: WaitpointOptions<unknown>['schema']): Json | undefined {
  if (schema === undefined) return undefined;
  // In some libraries schemas are functions.
  if ((typeof schema !== 'object' && typeof schema !== 'function') || schema === null) {
    refuse('options.schema', 'must be a schema');
  }
  if (!('~standard' in schema)) return schema as Json;
  const standard = (schema as Partial<PayloadSchema>)['~standard'];
  if (typeof standard?.jsonSchema?.input !== 'function' || typeof standard.validate !== 'function') {
    refuse(
      'options.schema',
      `of ${standard?.vendor ?? 'this library'} cannot be converted to JSON Schema, and payloads are checked where signals ` +
        'are delivered, in processes that do not have its code; use a schema that can be, such as one of zod (from 4.2) or ' +
        'arktype, or pass a JSON Schema',
    );
  }
  try {
    return standard.jsonSchema.input({ target: SCHEMA_TARGET }) as Json;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    refuse('options.schema', `cannot be converted to JSON Schema: ${why}`);
  }
}

async function resultOf<Payload>(
  outcome: WaitEnd,
  schema: Schema<unknown, Payload> | undefined,
): Promise<WaitResult<Payload>> {
  const signals: Signal<Payload>[] = [];
  for (const signal of outcome.signals) {
    const what = { field: 'payload', of: `Signal "${signal.name}" at "${signal.waitpoint}"` };
    signals.push({ ...signal, payload: await parseWith(schema, signal.payload, what) });
  }
  if (outcome.outcome === 'timed_out') return { outcome: 'timed_out', payload: undefined, signals };
  return { outcome: 'satisfied', payload: (signals.at(-1)?.payload ?? null) as Payload, signals };
}
