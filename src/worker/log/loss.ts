/**
 * Why a run ended without being able to report an outcome, as a sentence.
 */
import { shortDuration } from '../../contract/shape/duration.ts';
import type { LeaseRefusal } from '../../contract/protocol.ts';
import type { TerminalOutcome } from '../../contract/states.ts';
import type { AbortCode } from '../task.ts';
import { LOG_LIMITS } from './limits.ts';

/** How a lease was lost. */
export interface Loss {
  readonly code: AbortCode;
  /** What the database said; undefined when the worker itself stopped trusting the lease. */
  readonly refusal: LeaseRefusal | undefined;
  /** Time since the last renewal, or the grant. */
  readonly unconfirmedMs: number;
}

export interface ExplainedLoss {
  /** The outcome of the execution, if the loss means that it has one. */
  readonly outcome: TerminalOutcome | undefined;
  readonly why: string;
}

/** `stalledMs`: the longest delay of the event loop in the last seconds. */
export function explainLoss(loss: Loss | undefined, leaseMs: number, stalledMs: number): ExplainedLoss {
  if (loss === undefined)
    return {
      outcome: undefined,
      why: 'its outcome could not be reported; another worker continues when the lease lapses',
    };
  const outcome = outcomeOf(loss);
  if (outcome !== undefined) return { outcome, why: ENDED[outcome] ?? `it finished as ${outcome}` };
  return { outcome, why: WHY[loss.refusal?.outcome ?? ''] ?? whyUntrusted(loss, leaseMs, stalledMs) };
}

function outcomeOf({ code, refusal }: Loss): TerminalOutcome | undefined {
  if (code === 'cancelled') return 'cancelled';
  if (refusal?.outcome !== 'not_active' && refusal?.outcome !== 'conflict') return undefined;
  return refusal.terminalOutcome === 'none' ? undefined : refusal.terminalOutcome;
}

const ENDED: Partial<Record<TerminalOutcome, string>> = {
  cancelled: 'it was cancelled',
  expired: 'it expired: a time limit passed, or its last lease did',
  success: 'it was completed',
};

const WHY: Readonly<Record<string, string>> = {
  lease_revoked: 'an operator revoked it, and another worker takes over',
  timed_out:
    'the attempt or the execution reached its time limit; another attempt follows if the policy has one left',
  stale_lease: 'another worker has taken over',
  lease_expired: 'it was not renewed in time, and expired',
  not_active: 'the execution is no longer running under it',
  not_found: 'the execution was deleted',
};

function whyUntrusted({ code, unconfirmedMs }: Loss, leaseMs: number, stalledMs: number): string {
  if (code === 'revoked') return WHY['lease_revoked']!;
  if (code === 'deadline') return WHY['timed_out']!;
  if (unconfirmedMs < leaseMs / 2) return 'another worker has taken over, or the connection was closed';
  const silent = `it was not renewed for ${shortDuration(unconfirmedMs)} of ${shortDuration(leaseMs)}`;
  return stalledMs >= LOG_LIMITS.stallMs
    ? `${silent}, because the event loop was blocked for ${shortDuration(stalledMs)}`
    : `${silent}, because the database did not respond or the process was frozen`;
}
