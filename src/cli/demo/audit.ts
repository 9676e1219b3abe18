/**
 * The audit of the demo: every execution is read back from the database and counted. The workers' messages play no part,
 * except that two of them must never have completed the same execution.
 */
import type { ExecutionResult, ExecutionSnapshot } from '../../contract/executions.ts';
import type { Connection } from '../../connect/connection.ts';
import type { ExecutionId } from '../../contract/ids.ts';

/** Executions read at the same time. */
const READ_CHUNK = 50;

export interface Audit {
  submitted: number;
  completed: number;
  /** Attempts that failed and were followed by another one. */
  retried: number;
  /** Completed by another worker than the one that lost its lease on it. */
  takenOver: number;
  /** Ended in any other way. */
  failed: number;
  /** Submitted and not ended. */
  lost: number;
  /** With more than one successful attempt, or with the result of another execution. */
  wrong: number;
}

type Finding = Omit<Audit, 'submitted'>;

/** `ids[i]` is the execution with the number i + 1. */
export async function audit(engine: Connection, ids: readonly ExecutionId[]): Promise<Audit> {
  const total: Audit = {
    submitted: ids.length,
    completed: 0,
    retried: 0,
    takenOver: 0,
    failed: 0,
    lost: 0,
    wrong: 0,
  };
  for (let start = 0; start < ids.length; start += READ_CHUNK) {
    const chunk = ids.slice(start, start + READ_CHUNK);
    const findings = await Promise.all(
      chunk.map(async (id, index) => {
        const [snapshot, result] = await Promise.all([
          engine.executions.describe(id),
          engine.executions.result(id),
        ]);
        return judge(start + index + 1, snapshot, result);
      }),
    );
    for (const finding of findings) add(total, finding);
  }
  return total;
}

/** The numbers that have ended, according to the database. */
export async function endedAmong(
  engine: Connection,
  ids: readonly ExecutionId[],
  numbers: readonly number[],
): Promise<number[]> {
  const ended: number[] = [];
  for (let start = 0; start < numbers.length; start += READ_CHUNK) {
    const chunk = numbers.slice(start, start + READ_CHUNK);
    const results = await Promise.all(chunk.map((number) => engine.executions.result(ids[number - 1]!)));
    ended.push(...chunk.filter((_, index) => isEnd(results[index]!)));
  }
  return ended;
}

export function judge(number: number, snapshot: ExecutionSnapshot | null, result: ExecutionResult): Finding {
  const finding = { completed: 0, retried: 0, takenOver: 0, failed: 0, lost: 0, wrong: 0 };
  if (snapshot === null || !isEnd(result)) return { ...finding, lost: 1 };
  const { attempts } = snapshot;
  const successes = attempts.filter(({ outcome }) => outcome === 'success');
  const retried = attempts.slice(0, -1).filter(({ outcome }) => outcome === 'failed').length;
  if (result.outcome !== 'success') return { ...finding, retried, failed: 1 };
  const winner = successes.at(-1)?.workerInstanceId;
  const takenOver = attempts.some(
    ({ outcome, workerInstanceId }) => outcome === 'interrupted' && workerInstanceId !== winner,
  );
  const isRight = successes.length === 1 && numberOf(result.result) === number;
  return { ...finding, completed: 1, retried, takenOver: takenOver ? 1 : 0, wrong: isRight ? 0 : 1 };
}

function isEnd(result: ExecutionResult): boolean {
  return result.outcome !== 'pending' && result.outcome !== 'not_found';
}

function numberOf(result: unknown): unknown {
  return typeof result === 'object' && result !== null && 'number' in result ? result.number : undefined;
}

function add(total: Audit, finding: Finding): void {
  for (const key of Object.keys(finding) as (keyof Finding)[]) total[key] += finding[key];
}
