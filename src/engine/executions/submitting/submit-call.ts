/**
 * Arranges a submit for the database: what many executions have in common is sent once, as routes and templates, and
 * each execution refers to its own.
 */
import type { SubmitCall, SubmitRoute, SubmitRow, SubmitTemplate } from '../executions.sql.ts';

/** A valid request; `payload`, `policy` and `tags` are JSON strings. */
export interface CheckedRequest {
  uuid: string;
  partition: number;
  /** A minted id cannot have existed before: `duplicate` then means that an unanswered try had succeeded. */
  minted: boolean;
  namespace: string;
  priority: number;
  delayMs: number;
  deadlineMs: number | undefined;
  payload: string | null;
  policy: string;
  tags: string;
  lane: string;
  kind: string;
  capabilities: string[];
  idempotency: Idempotency | null;
}

/** A key, the hash of its request, and for how long it is kept at least. */
export interface Idempotency {
  key: string;
  bodyHash: string;
  windowMs: number;
}

export function toCall(entries: readonly CheckedRequest[]): SubmitCall {
  const routes = new Numbered<SubmitRoute>();
  const templates = new Numbered<SubmitTemplate>();
  const rows = entries.map((entry): SubmitRow => {
    const { lane, kind, capabilities, namespace, priority, policy, tags } = entry;
    const routeOrdinal = routes.number(`${lane}\n${kind}\n${capabilities.join()}`, () => ({
      lane,
      kind,
      capabilities,
    }));
    const templateOrdinal = templates.number(
      `${routeOrdinal}\n${priority}\n${namespace}\n${policy}\n${tags}`,
      () => ({ routeOrdinal, namespace, priority, policy, tags }),
    );
    const { uuid, partition, delayMs, payload, idempotency } = entry;
    return { uuid, partition, templateOrdinal, delayMs, payload, idempotency };
  });
  return { routes: routes.values, templates: templates.values, rows };
}

/** Distinct values in order of arrival, numbered from 1. */
class Numbered<Value> {
  readonly values: Value[] = [];
  readonly #ordinals = new Map<string, number>();

  number(key: string, make: () => Value): number {
    const known = this.#ordinals.get(key);
    if (known !== undefined) return known;
    const ordinal = this.values.push(make());
    this.#ordinals.set(key, ordinal);
    return ordinal;
  }
}
