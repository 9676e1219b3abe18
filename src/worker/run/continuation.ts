/**
 * What `ctx.continueAs` returns: the handler returns it in place of a result.
 */
import type { HeldLease } from '../loop/lease-watch.ts';
import { subjectOf, TaskFailed } from '../task.ts';

export class Continuation {
  readonly input: unknown;

  constructor(input: unknown) {
    this.input = input;
  }
}

/** The failure of a handler that asked for the next run and returned something else. */
export function notReturned({ claim }: HeldLease): TaskFailed {
  const sentence = `${subjectOf(claim)}: ctx.continueAs has no effect unless it is returned; write return ctx.continueAs(…).`;
  return new TaskFailed(sentence, { category: 'permanent', retry: 'never' });
}
