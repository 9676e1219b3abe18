/**
 * The leases a worker holds and how long it may trust them. Trust is measured on the monotonic clock from the moment a
 * request was sent, minus a margin: when it runs out the worker stops writing, whatever the database still believes.
 * The timer and every write both check it, because a frozen process may wake up between two lines.
 */
import { setMaxListeners } from 'node:events';
import type { Claim, LeaseRefusal, RenewOutcome, WorkerPort } from '../../contract/protocol.ts';
import type { Loss } from '../log/loss.ts';
import { TaskAborted, type AbortCode } from '../task.ts';

/** The part of a lease kept in reserve for a write that is in progress when it expires. */
const MARGIN = { share: 0.2, minMs: 2_000, maxShare: 0.5 };
/** Checks per lease duration; every second one renews, so that two renewals may be lost before the lease is. */
const CHECKS_PER_LEASE = 6;
/** Leases renewed in one statement. */
const RENEW_BATCH = 1_000;
/** How often per lease a renewal is tried again that found its execution locked: a busy one is locked most of the time. */
const HELD_TRIES_PER_LEASE = 60;

export class HeldLease {
  readonly claim: Claim;
  /** When the last request that granted or renewed it was sent. */
  #confirmedAt: number;
  #loss: Loss | undefined;
  /** Why the handler must stop, while there is something left to report. */
  #stoppedBy: AbortCode | undefined;
  /** Created on demand: most handlers finish first, and creating an Error is expensive. */
  #reason: TaskAborted | undefined;
  /** Created on demand: most handlers finish before anything uses the AbortSignal. */
  #abort: AbortController | undefined;

  constructor(claim: Claim, sentAt: number) {
    this.claim = claim;
    this.#confirmedAt = sentAt;
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      // Every step and wait of a handler may listen, and there may be thousands.
      setMaxListeners(0, this.#abort.signal);
      const reason = this.#stopReason();
      if (reason !== undefined) this.#abort.abort(reason);
    }
    return this.#abort.signal;
  }

  /** Why the lease was lost, or undefined while it is held. */
  get lostBy(): AbortCode | undefined {
    return this.#loss?.code;
  }

  /** How the lease was lost, or undefined while it is held. */
  get loss(): Loss | undefined {
    return this.#loss;
  }

  /** False once the lease is lost or may be: nothing may be written under it from then on. */
  isTrusted(): boolean {
    if (this.#loss !== undefined) return false;
    if (this.unconfirmedMs < trustMs(this.claim.leaseMs)) return true;
    this.lose('lease_lost');
    return false;
  }

  extend(sentAt: number): void {
    this.#confirmedAt = sentAt;
  }

  get unconfirmedMs(): number {
    return performance.now() - this.#confirmedAt;
  }

  /** Aborts the handler while the lease is still held: the worker has something left to write, the handler has not. */
  stopHandler(code: AbortCode): void {
    if (this.#stoppedBy !== undefined || this.#loss !== undefined) return;
    this.#stoppedBy = code;
    this.#abort?.abort(this.#stopReason());
  }

  /** Throws the reason if the handler must stop. */
  throwIfStopped(): void {
    const reason = this.#stopReason();
    if (reason !== undefined) throw reason;
  }

  #stopReason(): TaskAborted | undefined {
    const code = this.#stoppedBy ?? this.#loss?.code;
    if (code !== undefined) this.#reason ??= new TaskAborted(code);
    return this.#reason;
  }

  lose(code: AbortCode, refusal?: LeaseRefusal): void {
    if (this.#loss !== undefined) return;
    this.#loss = { code, refusal, unconfirmedMs: this.unconfirmedMs };
    this.#abort?.abort(this.#stopReason());
  }

  /** The database has refused a call under this lease: it is lost. */
  refused(refusal: LeaseRefusal): void {
    this.lose(abortCodeFor(refusal), refusal);
  }
}

/** How long a lease is trusted after the request that granted or renewed it. */
function trustMs(leaseMs: number): number {
  return leaseMs - Math.min(Math.max(MARGIN.minMs, leaseMs * MARGIN.share), leaseMs * MARGIN.maxShare);
}

/** Renews all leases of a worker in one call, at an interval and on request. */
export class LeaseWatch {
  readonly #port: WorkerPort;
  readonly #leaseMs: number;
  readonly #onError: (error: unknown) => void;
  /** By execution. A lease that is replaced here is lost, and needs no renewal. */
  readonly #leases = new Map<string, HeldLease>();
  #timer: NodeJS.Timeout | undefined;
  #renewing = false;
  #asked = false;
  #checks = 0;

  constructor(port: WorkerPort, leaseMs: number, onError: (error: unknown) => void) {
    this.#port = port;
    this.#leaseMs = leaseMs;
    this.#onError = onError;
  }

  add(lease: HeldLease): void {
    // A lease that was taken away may be granted to the same worker again before it learns of the loss.
    const { executionId } = lease.claim;
    this.#leases.get(executionId)?.lose('lease_lost');
    this.#leases.set(executionId, lease);
    this.#timer ??= setInterval(() => this.#check(), this.#leaseMs / CHECKS_PER_LEASE);
  }

  remove(lease: HeldLease): void {
    const { executionId } = lease.claim;
    if (this.#leases.get(executionId) === lease) this.#leases.delete(executionId);
    if (this.#leases.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Renews now, because a hint arrived that a lease was taken away. */
  checkNow(): void {
    if (this.#leases.size > 0) this.#beat();
  }

  #check(): void {
    for (const lease of this.#leases.values()) lease.isTrusted();
    this.#checks += 1;
    if (this.#checks % 2 === 0) this.#beat();
  }

  #beat(): void {
    // A renewal that hangs must not queue others behind it; one that was requested meanwhile follows.
    if (this.#renewing) {
      this.#asked = true;
      return;
    }
    this.#renewing = true;
    void this.#renew().finally(() => {
      this.#renewing = false;
      if (!this.#asked) return;
      this.#asked = false;
      this.checkNow();
    });
  }

  async #renew(): Promise<void> {
    const leases = [...this.#leases.values()].filter((lease) => lease.isTrusted());
    for (let from = 0; from < leases.length; from += RENEW_BATCH) {
      await this.#renewSome(leases.slice(from, from + RENEW_BATCH));
    }
  }

  /** Never waits for the row, which would delay the other leases; so it looks again soon, as long as it may. */
  #renewAgain(held: readonly HeldLease[]): void {
    if (held.length === 0) return;
    const timer = setTimeout(() => {
      const left = held.filter(
        (lease) => this.#leases.get(lease.claim.executionId) === lease && lease.isTrusted(),
      );
      if (left.length > 0) void this.#renewSome(left);
    }, this.#leaseMs / HELD_TRIES_PER_LEASE);
    timer.unref();
  }

  async #renewSome(leases: readonly HeldLease[]): Promise<void> {
    const sentAt = performance.now();
    try {
      const outcomes = await this.#port.renew(
        leases.map((lease) => lease.claim),
        this.#leaseMs,
      );
      leases.forEach((lease, index) => apply(lease, outcomes[index]!, sentAt));
      this.#renewAgain(leases.filter((_, index) => outcomes[index]!.outcome === 'held'));
    } catch (error) {
      // The leases stay trusted until their margin, and the next beat tries again.
      this.#onError(error);
    }
  }
}

function apply(lease: HeldLease, outcome: RenewOutcome, sentAt: number): void {
  if (outcome.outcome === 'renewed') lease.extend(sentAt);
  // A held lease stays trusted until its margin.
  else if (outcome.outcome !== 'held') lease.refused(outcome);
}

/** What a refused renewal means to the handler. */
export function abortCodeFor(refusal: LeaseRefusal): AbortCode {
  if (refusal.outcome === 'lease_revoked') return 'revoked';
  if (refusal.outcome === 'timed_out') return 'deadline';
  if (refusal.outcome === 'not_active' && refusal.terminalOutcome === 'cancelled') return 'cancelled';
  return 'lease_lost';
}
