/**
 * The claims that this engine grants. One is made for every execution, straight from the page that the database
 * returned, and keeps the parts of its id: whoever reports under it need not take the id apart again.
 */
import { formatExecutionId, type ExecutionId } from '../../contract/ids.ts';
import type { Json } from '../../contract/json.ts';
import type { Claim, LeaseRef } from '../../contract/protocol.ts';
import { leaseIdOf } from '../../model/lease-id.ts';
import type { ClaimPage } from '../executions/claiming/claims.sql.ts';
import type { KnownRoute } from '../executions/claiming/routes.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';

/** `declare`: each property is written once, by the constructor. */
export class GrantedClaim implements Claim {
  declare executionId: ExecutionId;
  declare attemptIndex: number;
  declare leaseEpoch: number;
  declare leaseId: string;
  declare kind: string;
  declare lane: string;
  declare namespace: string;
  declare priority: number;
  declare tags: Record<string, string>;
  declare payload: Json;
  declare retryCount: number;
  declare resumed: boolean;
  declare reclaimed: boolean;
  declare redacted: boolean;
  declare createdAtMs: number;
  declare generation: number;
  declare flowId: ExecutionId | null;
  declare leaseMs: number;
  readonly #uuid: string;
  readonly #partition: number;
  readonly #granted: ExecutionId;

  constructor(page: ClaimPage, index: number, { kind, lane }: KnownRoute, leaseMs: number) {
    const uuid = page.uuid[index]!;
    const partition = page.partition[index]!;
    const leaseEpoch = page.leaseEpoch[index]!;
    const flowUuid = page.flowUuid === null ? null : page.flowUuid[index]!;
    this.#uuid = uuid;
    this.#partition = partition;
    this.#granted = formatExecutionId(partition, uuid);
    this.executionId = this.#granted;
    this.attemptIndex = page.attemptIndex[index]!;
    this.leaseEpoch = leaseEpoch;
    this.leaseId = leaseIdOf(uuid, leaseEpoch);
    this.kind = kind;
    this.lane = lane;
    this.namespace = page.namespace[index]!;
    this.priority = page.priority[index]!;
    this.tags = page.tags[index]!;
    this.payload = page.payload[index]!;
    this.retryCount = page.retryCount[index]!;
    this.resumed = page.attemptState[index] === 'attempt_interrupted';
    this.reclaimed = page.reclaimed === null ? false : page.reclaimed[index]!;
    this.redacted = page.redacted === null ? false : page.redacted[index]!;
    this.createdAtMs = page.createdAtMs[index]!;
    this.generation = page.generation[index]!;
    // A flow and its members have one partition.
    this.flowId = flowUuid === null ? null : formatExecutionId(partition, flowUuid);
    this.leaseMs = leaseMs;
  }

  /** The key of a lease that is such a claim and still names the execution it was granted for. */
  static keyOf(lease: LeaseRef): LeaseKey | undefined {
    if (typeof lease !== 'object' || lease === null || !(#uuid in lease)) return undefined;
    if (lease.executionId !== lease.#granted) return undefined;
    const { attemptIndex, leaseEpoch } = lease;
    return { partition: lease.#partition, uuid: lease.#uuid, attemptIndex, leaseEpoch };
  }
}
