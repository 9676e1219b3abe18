/**
 * A process that spawns children, ends their parent and then them is killed instead of sending its n-th statement, for
 * every n: no child outlives its parent for longer than it takes another process to notice.
 */
import { expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { LIMITS } from '../../../src/contract/limits.ts';
import { workerPort } from '../../../src/connect/port.ts';
import { newKind, SOON, useCrew } from '../../worker/crew.ts';
import { startFlowProcess } from '../flows/processes.ts';
import { timeFor } from '../steps/task-processes.ts';

/** Three parts. */
const CHILDREN = 2 * LIMITS.familyPart + 50;
const PROCESSES = 15;
/** So long a timer is kept for whoever has begun its work. */
const TAKEN_OVER_MS = 5_000;
const LEASE_MS = 3_600_000;
const crew = useCrew();

interface Doomed {
  uuid: string;
  statements: string[];
  /** Open children of the ended parent that the process left behind; undefined when it had not ended it. */
  orphans: number | undefined;
}

async function runDoomed(engine: Connection, dieAt?: number): Promise<Doomed> {
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind: `${kind}.parent` });
  const { uuid } = parseExecutionId(executionId);
  const options = { url: crew.database.url, kind, leaseMs: LEASE_MS, children: CHILDREN };
  const process = startFlowProcess(dieAt === undefined ? options : { ...options, dieAt });
  const { statements } = await process.ended();
  const { rows } = await crew.database.query<{ phase: string; open: number }>(
    `SELECT p.lifecycle_phase::text AS phase, (
       SELECT count(*)::int FROM ff_execution c WHERE c.parent_id = p.execution_id AND c.lifecycle_phase <> 'terminal') AS open
     FROM ff_execution p WHERE p.execution_id = $1`,
    [uuid],
  );
  const { phase, open } = rows[0]!;
  return { uuid, statements, orphans: phase === 'terminal' ? open : undefined };
}

test(
  'every child ends with its parent, no matter at which statement the process is killed',
  timeFor(PROCESSES),
  async () => {
    const engine = await crew.connect();
    const whole = await runDoomed(engine);
    expect(whole.orphans).toBe(0);
    const parts = whole.statements.filter((text) => text.includes('ff_settle_family('));
    expect(parts).toHaveLength(3);
    const doomed = [whole];
    for (const [index] of whole.statements.entries()) {
      doomed.push(await runDoomed(engine, index + 1));
      // Another process takes over, once it may; the next one to be killed finds nothing of it.
      await crew.database.moveClock(TAKEN_OVER_MS);
      await workerPort(engine).fireTimers();
    }
    // Killed between the end of the parent and the first part, and between any two of them.
    const left = new Set(doomed.map(({ orphans }) => orphans));
    for (const orphans of [undefined, CHILDREN, CHILDREN - LIMITS.familyPart, 50, 0])
      expect(left).toContain(orphans);

    await crew.database.moveClock(LEASE_MS + 1);
    await crew.connect({ reconcile: 'on' });
    const unfinished = async (): Promise<unknown> => {
      const { rows } = await crew.database.query(
        `SELECT (SELECT count(*)::int FROM ff_execution WHERE parent_id IS NOT NULL AND lifecycle_phase <> 'terminal') AS open,
                (SELECT count(*)::int FROM ff_timer WHERE kind = 'family')
                  + (SELECT count(*)::int FROM ff_family_place) AS work`,
      );
      return rows[0];
    };
    await expect.poll(unfinished, { ...SOON, ...timeFor(2) }).toEqual({ open: 0, work: 0 });
    const ends = await crew.database.query(
      `SELECT DISTINCT h.terminal_outcome::text AS outcome, h.failure_category AS category, h.ended_by AS by
       FROM ff_execution c JOIN ff_attempt_history h USING (execution_id) WHERE c.parent_id = ANY ($1)`,
      [doomed.map(({ uuid }) => uuid)],
    );
    expect(ends.rows).toEqual([{ outcome: 'cancelled', category: 'parent_ended', by: 'engine' }]);
  },
);
