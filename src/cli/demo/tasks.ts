/**
 * The work of the demo: a thousand made-up executions of three kinds and the handlers that run them. What an
 * execution does depends on its number alone, so that every run shows the same: how long it takes, and
 * whether its first attempt fails. Nothing here knows processes or screens.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { SubmitRequest } from '../../contract/executions.ts';
import { task } from '../../define/task.ts';
import type { TaskContext } from '../../define/task-context.ts';
import { handle } from '../../define/handlers.ts';

export interface DemoPayload {
  number: number;
  takesMs: number;
  failsFirst: boolean;
}

/** Every kind, with the message of an attempt that fails. */
const COMPLAINTS = {
  'resize-image': 'image store: 503',
  'charge-card': 'network timeout',
  summarise: 'model overloaded',
} as const;

type DemoKind = keyof typeof COMPLAINTS;

const SLOW_EVERY = 5;
const FAIL_EVERY = 9;
/** More than the one planned failure: a lost lease uses up a try as well. */
const RETRIES = 10;
const BACKOFF_MS = 400;

export function demoKind(number: number): DemoKind {
  if (number % SLOW_EVERY === 0) return 'summarise';
  return number % 2 === 0 ? 'charge-card' : 'resize-image';
}

/** Most take some tens of milliseconds; the slow ones keep a lease long enough to lose it. */
function demoDuration(number: number): number {
  return number % SLOW_EVERY === 0 ? 300 + ((number * 37) % 400) : 10 + ((number * 7) % 50);
}

export function demoRequest(number: number, namespace: string): SubmitRequest {
  const payload: DemoPayload = {
    number,
    takesMs: demoDuration(number),
    failsFirst: number % FAIL_EVERY === 0,
  };
  return {
    kind: demoKind(number),
    namespace,
    payload,
    policy: { retry: { maxRetries: RETRIES, backoff: { type: 'fixed', delay: BACKOFF_MS } } },
  };
}

async function work(input: DemoPayload, ctx: TaskContext): Promise<{ number: number }> {
  const { number, takesMs, failsFirst } = input;
  await delay(takesMs, undefined, { signal: ctx.signal });
  if (failsFirst && ctx.attemptIndex === 0) throw new Error(COMPLAINTS[ctx.kind as DemoKind]);
  return { number };
}

export const demoHandlers = Object.keys(COMPLAINTS).map((kind) => handle(task<DemoPayload>(kind), work));
