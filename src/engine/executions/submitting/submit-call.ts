/**
 * Arranges a submit for the database: what many executions have in common is sent once, as routes and templates, and
 * each execution refers to its own.
 */
import type { SubmitCall, SubmitRoute, SubmitRow, SubmitTemplate } from './submits.sql.ts';

/** A valid request; `payload`, `policy` and `tags` are JSON strings. */
export interface CheckedRequest extends SubmitRow {
  /** A minted id cannot have existed before: `duplicate` then means that an unanswered try had succeeded. */
  minted: boolean;
  namespace: string;
  priority: number;
  deadlineMs: number | undefined;
  policy: string;
  tags: string;
  lane: string;
  kind: string;
  /** The same list for all that need none. */
  capabilities: readonly string[];
  idempotency: Idempotency | null;
}

/** A key, the hash of its request, and for how long it is kept at least. */
export interface Idempotency {
  key: string;
  bodyHash: string;
  windowMs: number;
}

export function toCall(rows: readonly CheckedRequest[]): SubmitCall {
  const routes = new Numbered<SubmitRoute>();
  const templates = new Numbered<SubmitTemplate>();
  const templateOrdinals: number[] = [];
  let before: CheckedRequest | undefined;
  let ordinal = 0;
  for (const entry of rows) {
    // Most have the template of the one before them: no name of it is built to find that out.
    if (before === undefined || !isLike(entry, before)) ordinal = numberOf(entry, routes, templates);
    templateOrdinals.push(ordinal);
    before = entry;
  }
  return { routes: routes.values, templates: templates.values, rows, templateOrdinals };
}

function isLike(a: CheckedRequest, b: CheckedRequest): boolean {
  return (
    a.kind === b.kind &&
    a.lane === b.lane &&
    a.capabilities === b.capabilities &&
    a.namespace === b.namespace &&
    a.priority === b.priority &&
    a.policy === b.policy &&
    a.tags === b.tags
  );
}

function numberOf(
  { lane, kind, capabilities, namespace, priority, policy, tags }: CheckedRequest,
  routes: Numbered<SubmitRoute>,
  templates: Numbered<SubmitTemplate>,
): number {
  const routeOrdinal = routes.number(`${lane}\n${kind}\n${capabilities.join()}`, () => ({
    lane,
    kind,
    capabilities,
  }));
  return templates.number(`${routeOrdinal}\n${priority}\n${namespace}\n${policy}\n${tags}`, () => ({
    routeOrdinal,
    namespace,
    priority,
    policy,
    tags,
  }));
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
