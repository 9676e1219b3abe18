/**
 * What the exit codes of `flowfabric` mean, and which one an error of the engine maps to. They are documented in
 * docs/cli.md, and scripts rely on them.
 */
import { isEngineError, type ErrorCode } from '../contract/errors.ts';
import type { Line } from './style.ts';

export const EXIT = {
  ok: 0,
  /** It was tried and failed. */
  failed: 1,
  /** The command or an argument is invalid. */
  usage: 2,
  notFound: 3,
  /** The state of the execution does not allow it, or a token is not valid. */
  refused: 4,
  /** The database cannot be reached; EX_UNAVAILABLE of sysexits. */
  unavailable: 69,
  /** As `timeout` of coreutils. */
  timedOut: 124,
} as const;

const BY_CODE: Partial<Record<ErrorCode, number>> = {
  execution_ended: EXIT.refused,
  no_reply: EXIT.timedOut,
  invalid_input: EXIT.usage,
  invalid_id: EXIT.usage,
  invalid_policy: EXIT.usage,
  invalid_capabilities: EXIT.usage,
  payload_too_large: EXIT.usage,
  too_many: EXIT.usage,
  invalid_cursor: EXIT.usage,
  signing_not_configured: EXIT.usage,
  idempotency_key_reused: EXIT.refused,
  key_of_another_task: EXIT.refused,
  invalid_token: EXIT.refused,
  not_found: EXIT.notFound,
  unavailable: EXIT.unavailable,
  no_connection: EXIT.unavailable,
  contention: EXIT.unavailable,
  embedded_unavailable: EXIT.unavailable,
};

/** An argument is invalid; the message says which. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  /** Whose help has more; set where the command is known. */
  command: string | undefined;
  /** What is printed with the message, and a code of its own. */
  detail: { code: string; json: object; lines: readonly Line[] } | undefined;
}

export function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError) return EXIT.usage;
  return isEngineError(error) ? (BY_CODE[error.code] ?? EXIT.failed) : EXIT.failed;
}
