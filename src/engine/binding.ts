/**
 * Binds operations to an open engine: each first checks that the engine is not closed, and is counted and traced if
 * OpenTelemetry is set up. Every operation goes through here.
 */
import type { EngineContext } from './kit/context.ts';
import type { Telemetry } from './telemetry.ts';

/** An operation as it is implemented: with the engine's parts before the caller's arguments. */
type Operation<Verb> = Verb extends (...args: infer Args) => infer Answer
  ? (context: EngineContext, ...args: Args) => Answer
  : never;

/** The operations of some groups, by noun and verb. */
export type Operations<Groups> = {
  readonly [Noun in keyof Groups]: {
    readonly [Verb in keyof Groups[Noun]]: Operation<Groups[Noun][Verb]>;
  };
};

type Loose = (context: EngineContext, ...args: unknown[]) => unknown;
type Bound = (...args: unknown[]) => unknown;

/**
 * These synchronously return something that is read or called later. All others return promises, and refuse by
 * rejecting.
 */
const AT_ONCE: ReadonlySet<string> = new Set([
  'executions.bulk',
  'streams.tail',
  'streams.watchSummary',
  'worker.watch',
]);

/** `open` throws once the engine is closed. */
export function bindOperations<Groups extends object>(
  operations: Operations<Groups>,
  open: () => EngineContext,
  telemetry: Telemetry | undefined,
): Groups {
  const bind = (name: string, operation: Loose): Bound => {
    if (AT_ONCE.has(name)) return bindAtOnce(name, operation, open, telemetry);
    const call = async (args: unknown[]): Promise<unknown> => operation(open(), ...args);
    if (telemetry === undefined) return (...args) => call(args);
    return (...args) => telemetry.observe(name, () => call(args));
  };
  const groups = Object.entries(operations).map(([noun, verbs]) => {
    const bound = Object.entries(verbs as Record<string, Loose>).map(
      ([verb, operation]) => [verb, bind(`${noun}.${verb}`, operation)] as const,
    );
    return [noun, Object.fromEntries(bound)] as const;
  });
  return Object.fromEntries(groups) as Groups;
}

function bindAtOnce(
  name: string,
  operation: Loose,
  open: () => EngineContext,
  telemetry: Telemetry | undefined,
): Bound {
  return (...args) => {
    try {
      const answer = operation(open(), ...args);
      telemetry?.count(name);
      return answer;
    } catch (error) {
      telemetry?.count(name, error);
      throw error;
    }
  };
}
