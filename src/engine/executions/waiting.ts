/**
 * Waiting for executions to finish.
 */
import { EngineError } from '../../contract/errors.ts';
import type { ExecutionEnd, WaitOptions } from '../../contract/executions.ts';
import { parseExecutionId, type ParsedExecutionId } from '../../contract/ids.ts';
import { abortSignal } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { Doorbell } from '../kit/doorbell.ts';
import { Watch } from '../kit/watching.ts';
import { readOutcomes, type StoredOutcome } from './reads.sql.ts';
import type { Database } from '../database/database.ts';
import { toResult } from './reads.ts';

const waitOptions = shape<WaitOptions>({ signal: abortSignal.optional() });

export class EndWatch {
  readonly #watch: Watch<ParsedExecutionId, StoredOutcome, ExecutionEnd>;

  constructor(database: Database, doorbell: Doorbell) {
    this.#watch = new Watch(doorbell, {
      async read(keys) {
        const rows = await readOutcomes(database, [...new Set(keys.map(({ uuid }) => uuid))]);
        const found = new Map(rows.map((row) => [row.uuid, row]));
        return keys.map(({ uuid }) => found.get(uuid));
      },
      judge: endOf,
    });
  }

  wait(executionId: string, options: WaitOptions): Promise<ExecutionEnd> {
    const key = parseExecutionId(executionId);
    const { signal } = waitOptions.check(options, 'options');
    return this.#watch.wait(key, signal);
  }

  /** Rejects the remaining waiters. */
  close(): void {
    this.#watch.close();
  }
}

function endOf(row: StoredOutcome | undefined, key: ParsedExecutionId): ExecutionEnd | undefined {
  if (row === undefined || row.partition !== key.partition)
    throw new EngineError('not_found', 'There is no such execution.', { field: 'executionId' });
  const result = toResult(row);
  return result.outcome === 'pending' ? undefined : (result as ExecutionEnd);
}
