/**
 * What keeps a running execution from starting: its lease, and whether the owner is still there. Words and facts, from
 * values.
 */
import { shortDuration } from '../../contract/shape/duration.ts';

/** A worker that was silent for longer has missed a heartbeat: it sends one every 10 seconds. */
const HEARD_WITHIN_MS = 15_000;

export interface LeaseFacts {
  workerInstanceId: string;
  expiresInMs: number;
  /** How long ago the owner sent its last heartbeat; null when it is not registered. */
  silentForMs: number | null;
}

/** `isStuck`: its expiry was noticed, and could not be acted on. */
export function tellLease(lease: LeaseFacts, isStuck: boolean): string {
  const { workerInstanceId, expiresInMs, silentForMs } = lease;
  if (expiresInMs > 0) {
    const rest = `its lease expires in ${shortDuration(expiresInMs)} unless the worker renews it`;
    return `Worker ${workerInstanceId} is running it${doubtAbout(silentForMs)}; ${rest}.`;
  }
  const next = isStuck ? 'could not be cleaned up so far' : 'is cleaned up within about a second';
  return `The lease of worker ${workerInstanceId} expired ${shortDuration(-expiresInMs)} ago and ${next}.`;
}

/** A killed worker keeps its lease until it expires; its missing heartbeats show earlier that it is gone. */
function doubtAbout(silentForMs: number | null): string {
  if (silentForMs === null) return ', but is not registered';
  return silentForMs > HEARD_WITHIN_MS ? `, but has sent no heartbeat for ${shortDuration(silentForMs)}` : '';
}
