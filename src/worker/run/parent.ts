/**
 * `ctx.parent`: what a child does to the document of its parent. Inside a step only: the change is stored with the step,
 * in one commit, and so happens once however often the step runs.
 */
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { ParentChange } from '../../contract/streams.ts';
import type { ParentOutcome, ParentScope } from '../../define/output.ts';
import { checkParentChange } from '../../model/parent-changes.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { subjectOf } from '../task.ts';
import { insist } from './insist.ts';
import type { StepTry } from './run-step.ts';

/** What it needs of its run. */
interface ParentRun {
  port: WorkerPort;
  lease: HeldLease;
  /** The try of a step the caller is in. */
  currentTry(): StepTry | undefined;
  /** Whether the caller is inside a ctx.tx. */
  isInTransaction(): boolean;
}

export function parentScope(run: ParentRun): ParentScope {
  return {
    patch: (patch) => change(run, 'parent.patch', { patch: patch as object }),
    increment: (path, by = 1) =>
      change(run, 'parent.increment', { path: typeof path === 'string' ? [path] : path, by }),
  };
}

async function change(run: ParentRun, call: string, wanted: ParentChange): Promise<ParentOutcome> {
  const subject = subjectOf(run.lease.claim);
  const own = run.currentTry();
  if (own === undefined || run.isInTransaction())
    throw new EngineError(
      'invalid_step',
      `${subject}: ctx.${call} works inside the function of a ctx.step only.`,
    );
  own.over.throwIfAborted();
  const copied = checked(subject, call, wanted);
  const state = await insist(run.lease, () => run.port.readParent(run.lease.claim));
  own.over.throwIfAborted();
  if (state === 'none') throw new EngineError('invalid_step', `${subject}: ctx.${call}: it has no parent.`);
  if (state === 'not_active') return { outcome: 'not_active' };
  if (own.forParent.length >= LIMITS.appendPatches) {
    const sentence = `ctx.${call}: a step can change the document of its parent ${LIMITS.appendPatches} times`;
    throw new EngineError('too_many', `${subject}: ${sentence}.`);
  }
  own.forParent.push(copied);
  return { outcome: 'taken' };
}

/** A copy as it will be stored: the caller may change the original. */
function checked(subject: string, call: string, wanted: ParentChange): ParentChange {
  try {
    checkParentChange(wanted, 'change');
    return JSON.parse(JSON.stringify(wanted)) as ParentChange;
  } catch (error) {
    if (!isEngineError(error)) throw error;
    const { code, field = 'change', message, cause } = error;
    throw new EngineError(code, `${subject}: ctx.${call}: ${message}`, { field, cause });
  }
}
