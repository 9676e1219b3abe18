/**
 * Idempotency keys: what a key stands for, and where its execution lives. The same key with another body is a mistake
 * of the caller, so the body is remembered by its hash.
 */
import { createHash } from 'node:crypto';
import type { SubmitRequest } from '../contract/engine.ts';
import { LIMITS } from '../contract/limits.ts';
import { TRACE_TAGS } from '../contract/trace-context.ts';
import { checkText, refuse } from './checks.ts';
import type { Idempotency } from './submit-call.ts';

const DEFAULT_WINDOW_MS = 86_400_000;

/**
 * Null for a request without a key. `payload` is the JSON text that is stored. The policy counts as the caller gave it:
 * another default in the next deployment does not make it another request; neither does the trace it is part of.
 */
export function idempotencyOf(request: SubmitRequest, payload: string | null): Idempotency | null {
  const { idempotencyKey, executionId, lane, kind, policy, tags } = request;
  if (idempotencyKey === undefined) return null;
  if (executionId !== undefined) refuse('idempotencyKey', 'cannot be given together with executionId');
  const own = Object.entries(tags ?? {}).filter(([key]) => !TRACE_TAGS.includes(key));
  const body = {
    lane: lane ?? 'default',
    kind,
    payload: payload === null ? null : (JSON.parse(payload) as unknown),
    policy: policy ?? null,
    tags: Object.fromEntries(own),
  };
  return {
    key: checkText(idempotencyKey, 'idempotencyKey', LIMITS.idempotencyKeyBytes),
    bodyHash: createHash('sha256').update(canonicalJson(body)).digest('hex'),
    windowMs: policy?.dedupWindowMs ?? DEFAULT_WINDOW_MS,
  };
}

/** JSON with the members of every object in one order. Absent members are left out. */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item ?? null)).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`);
  return `{${members.join(',')}}`;
}
