/**
 * Waits until no execution with some tags is open. One open execution is found and waited for, and then the next: its
 * end is pushed, and looked for again at intervals, since its tags may change.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { formatExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { SettledRequest } from '../../contract/operations.ts';
import { abortSignal } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { EngineContext } from '../kit/context.ts';
import { findableTags } from './lists.ts';
import { namespaceName } from '../kit/kinds.ts';
import { findOpen } from './settled.sql.ts';

/** How long one open execution is waited for before all of them are looked at again. */
const LOOK_AGAIN_MS = 5_000;
/** Looking takes at most this part of the time: the rest is waited. */
const SHARE = 5;

const settledRequest = shape<SettledRequest>({
  tags: findableTags,
  namespace: namespaceName.optional(),
  signal: abortSignal.optional(),
});

export async function settled(context: EngineContext, request: SettledRequest): Promise<void> {
  const { tags, namespace = null, signal } = settledRequest.check(request, 'request', '');
  const asked = { tag: Object.entries(tags)[0]!, tags, namespace };
  for (;;) {
    signal?.throwIfAborted();
    const began = performance.now();
    const { open, crowded } = await findOpen(context.database, asked, LIMITS.settledExamined);
    if (crowded) {
      const sentence = `More than ${LIMITS.settledExamined} executions have this tag; use one per batch.`;
      throw new EngineError('too_many', sentence, { field: 'tags' });
    }
    if (open === undefined) return;
    const rest = Math.min((performance.now() - began) * (SHARE - 1), LOOK_AGAIN_MS);
    await endOrTime(context, formatExecutionId(open.partition, open.uuid), signal);
    await pausing(rest, signal);
  }
}

/** Resolves when the execution has ended or is gone, and after a while. */
async function endOrTime(
  { ends }: EngineContext,
  executionId: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  const time = AbortSignal.timeout(LOOK_AGAIN_MS);
  try {
    await ends.wait(executionId, { signal: signal === undefined ? time : AbortSignal.any([signal, time]) });
  } catch (error) {
    signal?.throwIfAborted();
    const isGone = isEngineError(error) && error.code === 'not_found';
    if (!time.aborted && !isGone) throw error;
  }
}

async function pausing(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await pause(ms, undefined, { signal }).catch((error: unknown) => {
    signal?.throwIfAborted();
    throw error;
  });
}
