/**
 * Arranges the ids of one call for the database: each execution once, and no uuid twice in one statement, because the
 * same uuid with a wrong partition is another id. The outcomes are returned in the caller's order.
 */
import { formatExecutionId, parseExecutionId } from '../../contract/ids.ts';
import { list, parsed } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ExpectedKey } from '../executions/executions.sql.ts';
import { inOrder } from './answers.ts';

const ids = list(parsed, LIMITS.idBatch);

export async function eachOnce<Row extends { uuid: string }, Outcome>(
  executionIds: readonly string[],
  epochs: readonly number[] | undefined,
  toOutcome: (key: ExpectedKey, row: Row) => Outcome,
  act: (keys: ExpectedKey[]) => Promise<Row[]>,
): Promise<Outcome[]> {
  ids.check(executionIds, 'executionIds');
  const keys = executionIds.map((id, index): ExpectedKey => ({
    ...parseExecutionId(id, `executionIds[${index}]`),
    leaseEpoch: epochs?.[index] ?? null,
  }));
  const answers = new Map<string, Row>();
  for (const round of rounds(keys)) {
    const rows = await act(round);
    inOrder(round, rows).forEach((row, index) => answers.set(nameOf(round[index]!), row));
  }
  return keys.map((key) => toOutcome(key, answers.get(nameOf(key))!));
}

function nameOf(key: ExpectedKey): string {
  return formatExecutionId(key.partition, key.uuid);
}

function rounds(keys: readonly ExpectedKey[]): ExpectedKey[][] {
  const made: Map<string, ExpectedKey>[] = [];
  for (const key of new Map(keys.map((each) => [nameOf(each), each])).values()) {
    let round = made.find((taken) => !taken.has(key.uuid));
    if (round === undefined) made.push((round = new Map()));
    round.set(key.uuid, key);
  }
  return made.map((round) => [...round.values()]);
}
