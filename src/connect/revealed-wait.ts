/**
 * Waiting for the outcome of an execution whose contract the caller has: it may see what the task redacts.
 */
import type { Executions } from '../contract/connection.ts';
import type { ExecutionEnd, WaitOptions } from '../contract/executions.ts';
import { parsed } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';
import { guarded } from './guarded.ts';

/** The signal is checked by the wait itself. */
const waitOptions = shape<WaitOptions>({ signal: parsed.optional() });

export function revealedWait(
  executions: Executions,
  executionId: string,
): (options?: WaitOptions) => Promise<ExecutionEnd> {
  const { wait } = guarded({
    wait: async (options: WaitOptions = {}) =>
      executions.wait(executionId, { ...waitOptions.check(options, 'options'), reveal: true }),
  });
  return wait;
}
