/**
 * Binds operations to an open engine: each first checks that the engine is not closed, and is counted and traced if
 * OpenTelemetry is set up. Every operation goes through here. How it is bound is declared where it is listed.
 */
import { reporting } from '../telemetry/reporting.ts';
import type { Telemetry } from '../telemetry/operations.ts';
import type { EngineContext } from './kit/context.ts';

/**
 * How an operation is bound if it is not simply a call with a span around it.
 * - `at once`: returns, without a promise, something that is read or called later; it is only counted.
 * - `frequent`: called by a worker all the time, mostly for nothing; it is only counted.
 * - `lasting`: what it starts continues after the call, and does not belong to the call's span.
 */
type Mode = 'at once' | 'frequent' | 'lasting';

interface Bindable<As extends Mode, Run> {
  readonly mode: As;
  readonly run: Run;
}

export function atOnce<Run>(run: Run): Bindable<'at once', Run> {
  return { mode: 'at once', run };
}

export function frequent<Run>(run: Run): Bindable<'frequent', Run> {
  return { mode: 'frequent', run };
}

export function lasting<Run>(run: Run): Bindable<'lasting', Run> {
  return { mode: 'lasting', run };
}

/** An operation as it is implemented: with the engine's parts before the caller's arguments. */
type Operation<Verb> = Verb extends (...args: infer Args) => infer Answer
  ? InMode<(context: EngineContext, ...args: Args) => Answer, Answer>
  : never;

/** What returns promises refuses by rejecting. All else must be bound at once. */
type InMode<Run, Answer> =
  Answer extends Promise<unknown> ? Run | Bindable<'frequent' | 'lasting', Run> : Bindable<'at once', Run>;

/** The operations of some groups, by noun and verb. */
export type Operations<Groups> = {
  readonly [Noun in keyof Groups]: {
    readonly [Verb in keyof Groups[Noun]]: Operation<Groups[Noun][Verb]>;
  };
};

type Loose = (context: EngineContext, ...args: unknown[]) => unknown;
type Bound = (...args: unknown[]) => unknown;

/** `open` throws once the engine is closed. */
export function bindOperations<Groups extends object>(
  operations: Operations<Groups>,
  open: () => EngineContext,
  telemetry: Telemetry | undefined,
): Groups {
  const groups = Object.entries(operations).map(([noun, verbs]) => {
    const bound = Object.entries(verbs as Record<string, Loose | Bindable<Mode, Loose>>).map(
      ([verb, operation]) => [verb, bind(`${noun}.${verb}`, operation, open, telemetry)] as const,
    );
    return [noun, Object.fromEntries(bound)] as const;
  });
  return Object.fromEntries(groups) as Groups;
}

function bind(
  name: string,
  operation: Loose | Bindable<Mode, Loose>,
  open: () => EngineContext,
  telemetry: Telemetry | undefined,
): Bound {
  const { mode, run } = typeof operation === 'function' ? { mode: undefined, run: operation } : operation;
  const call = (args: unknown[]): unknown => run(open(), ...args);
  // Not an async function: its promise would be one more around that of the operation, for every call.
  const callLater = (args: unknown[]): Promise<unknown> => {
    try {
      return call(args) as Promise<unknown>;
    } catch (error) {
      return Promise.reject(error as Error);
    }
  };
  if (telemetry === undefined)
    return mode === 'at once' ? (...args) => call(args) : (...args) => callLater(args);
  if (mode === 'at once') return counting(name, call, telemetry);
  if (mode === 'frequent')
    return (...args) => {
      const answer = callLater(args);
      return telemetry.isIdle() ? answer : reporting(answer, (ended) => telemetry.count(name, ended));
    };
  if (mode === 'lasting') return (...args) => telemetry.observe(name, () => callLater(args), mode);
  return (...args) => (telemetry.isIdle() ? callLater(args) : telemetry.observe(name, () => callLater(args)));
}

function counting(name: string, call: (args: unknown[]) => unknown, telemetry: Telemetry): Bound {
  return (...args) => {
    let answer: unknown;
    try {
      answer = call(args);
    } catch (error) {
      telemetry.count(name, { result: 'error', error });
      throw error;
    }
    telemetry.count(name, { result: 'ok' });
    return answer;
  };
}
