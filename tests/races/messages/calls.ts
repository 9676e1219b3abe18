/**
 * The functions of messages as calls a race can make. Split from calls.ts. No race and no expectation belongs here.
 */
import { randomUUID } from 'node:crypto';
import type { Call, Caller, Lease } from '../calls.ts';

const MAX_MESSAGES = 10_000;
const MAX_BYTES = 1_000_000;
const KEPT_RUNS = 20;
const ID_MS = 3_600_000;
/** Messages a run may receive. */
const RUN_LIMIT = 1_000;

export interface Receiving {
  /** The number of the receive in its run. */
  key?: string;
  timeoutMs?: number;
  limit?: number;
}

export interface MessageCalls {
  send(id: string, messageId?: string): Call;
  /** The next message, or nothing by its timeout. */
  receive(lease: Lease, receiving?: Receiving): Call;
  /** `part`: rows of one kind that are deleted at once. */
  continueAs(lease: Lease, part?: number): Call;
}

/** `partition` is that of every execution of a race. */
export function messageCallsOf(call: Caller, partition: number): MessageCalls {
  const of = (made: Call, columns: string): Call => ({
    sql: `${made.sql.replace('SELECT * FROM ', `SELECT $1::uuid AS execution_id, ${columns} FROM `)} f`,
    params: made.params,
  });
  return {
    send: (id, messageId = randomUUID()) =>
      of(
        call(
          'send',
          `ARRAY[$1::uuid], ARRAY[${partition}::smallint], ARRAY['in'], ARRAY[$2::text], ARRAY['{}'::jsonb], ARRAY[false],
           true, ${MAX_MESSAGES}, ${MAX_BYTES}`,
          [id, messageId],
        ),
        // A signal has the same outcome.
        `CASE f.outcome WHEN 'resumed' THEN 'woken' ELSE f.outcome END AS outcome`,
      ),
    receive: ({ id, attempt, epoch }, { key = '1', timeoutMs, limit = RUN_LIMIT } = {}) =>
      of(
        call(
          'suspend',
          `$1, ${partition}::smallint, $2, $3, 'suspend', false, $4::jsonb, '[]', 0, NULL, NULL, NULL`,
          [
            id,
            attempt,
            epoch,
            JSON.stringify([
              {
                name: 'inbox:in',
                key,
                condition: { kind: 'message', mailbox: 'in', limit },
                timeout_ms: timeoutMs ?? null,
                on_timeout: 'resume',
                resume_delay_ms: 0,
                reason: 'signal',
              },
            ]),
          ],
        ),
        `f.*, f.outcome = 'already_suspended' AS repeated`,
      ),
    continueAs: ({ id, attempt, epoch }, part = 1_000) =>
      of(
        call(
          'continueAs',
          `$1, ${partition}::smallint, $2, $3, '{"next": true}', ${KEPT_RUNS}, ${ID_MS}, $4`,
          [id, attempt, epoch, part],
        ),
        'f.*',
      ),
  };
}
