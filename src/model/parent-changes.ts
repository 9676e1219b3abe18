/**
 * Changes of a parent's document, checked before anything is written: by the worker at the call that makes them, and by
 * the engine for all other callers.
 */
import { LIMITS } from '../contract/limits.ts';
import { refuse } from '../contract/shape/shape.ts';
import type { ParentChange } from '../contract/streams.ts';
import { encodeFrame } from './frames.ts';

/** A patch is checked as the frame that it becomes, and so is what an increment comes to. */
export function checkParentChange(change: ParentChange, field: string): void {
  if (typeof change !== 'object' || change === null) refuse(field, 'must be an object');
  const { patch, path, by } = change as { patch?: unknown; path?: unknown; by?: unknown };
  if (patch !== undefined) {
    if (path !== undefined || by !== undefined) refuse(field, 'must be a patch or an increment, not both');
    encodeFrame({ payload: patch, mode: 'summary' }, field);
    return;
  }
  if (typeof by !== 'number' || !Number.isFinite(by)) refuse(`${field}.by`, 'must be a finite number');
  if (!Array.isArray(path) || path.length === 0 || !path.every((key) => typeof key === 'string'))
    refuse(`${field}.path`, 'must be a list of at least one key');
  if (path.length > LIMITS.patchDepth) refuse(`${field}.path`, `is longer than ${LIMITS.patchDepth} keys`);
  let payload: unknown = by;
  for (const key of (path as string[]).toReversed()) payload = { [key]: payload };
  encodeFrame({ payload, mode: 'summary' }, field);
}
