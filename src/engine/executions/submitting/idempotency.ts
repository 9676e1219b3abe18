/**
 * Idempotency keys: the request a key stands for, stored as a hash, because the same key with another request is a
 * mistake of the caller.
 */
import { createHash } from 'node:crypto';
import type { SubmitRequest } from '../../../contract/executions.ts';
import { TRACE_TAGS } from '../../../contract/trace-context.ts';
import { msOf, type Duration } from '../../../contract/shape/duration.ts';
import { KEY_MARK } from '../../../contract/ids.ts';
import { refuse } from '../../../contract/shape/shape.ts';
import type { Idempotency } from './submit-call.ts';

const DEFAULT_WINDOW_MS = 86_400_000;

/**
 * Null for a request without a key. `payload` is the JSON string that is stored. The comparison covers what is
 * requested, not how it is run: lane and policy mostly come from a task, and the next deployment may have others.
 */
export function idempotencyOf(
  request: SubmitRequest,
  payload: string | null,
  field: string,
  defaultWindow: Duration = DEFAULT_WINDOW_MS,
): Idempotency | null {
  const { idempotencyKey, executionId, kind, policy, tags } = request;
  if (idempotencyKey === undefined) return null;
  if (executionId !== undefined) {
    refuse(`${field}.idempotencyKey`, 'cannot be given together with executionId');
  }
  const own = Object.entries(tags ?? {}).filter(([key]) => !TRACE_TAGS.includes(key));
  const body = {
    kind,
    payload: payload === null ? null : (JSON.parse(payload) as unknown),
    tags: Object.fromEntries(own),
  };
  return {
    // Beside a key it is meant under that: neither contains the mark.
    key: request.key === undefined ? idempotencyKey : `${request.key}${KEY_MARK}${idempotencyKey}`,
    bodyHash: createHash('sha256').update(canonicalJson(body)).digest('hex'),
    windowMs: msOf(policy?.dedupWindow ?? defaultWindow),
  };
}

/** JSON with the keys of every object sorted. Undefined values are left out. */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item ?? null)).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value)
    .filter(([, entry]) => entry !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, entry]) => `${JSON.stringify(key)}:${canonicalJson(entry)}`);
  return `{${entries.join(',')}}`;
}
