/**
 * Races for an idempotency key: two submits with it, in either order, inside transactions that commit or roll back, and
 * the removal of expired keys. Whatever happens, a key stands for one execution.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Connection, type SubmitRequest, type SubmitResult } from '../../../src/index.ts';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { forgetKeys } from '../../../src/engine/upkeep/retention.sql.ts';
import { runRace, stepValue, tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { Interleaving, RaceSpec, StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { isBefore } from '../arena.ts';

const WINDOW_MS = 1_000;
const AGAIN_MS = 3_600_000;

let database: TestDatabase;
let engine: Connection;
let context: EngineContext;
let closeContext: () => Promise<void>;

beforeAll(async () => {
  database = await testDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off', listen: 'off', defaultPolicy: {} });
  const opened = await openEngine({ databaseUrl: database.url, listen: 'off', poolSize: 1 });
  context = opened.context;
  closeContext = () => opened.engine.close();
});

afterAll(async () => {
  await closeContext?.();
  await engine?.close();
  await database?.drop();
});

/** The requests of one permutation, of their own kind whose route is interned, keys in ascending order. */
interface Plan extends Record<string, unknown> {
  requests: SubmitRequest[];
  kind: string;
}

async function planned(count: number, own: Partial<SubmitRequest> = {}): Promise<Plan> {
  const kind = randomUUID();
  const { executionId } = await engine.executions.submit({ kind });
  await engine.cancel(executionId, { reason: 'only for its route' });
  const names = Array.from({ length: count }, () => randomUUID()).toSorted();
  return { kind, requests: names.map((idempotencyKey) => ({ kind, idempotencyKey, ...own })) };
}

type Steps = StepLike<Plan>[];

/** Submits inside the session's own transaction; the results are those of the requests. */
function submitting(pick: (plan: Plan) => SubmitRequest[], isolation = 'READ COMMITTED'): Steps[number] {
  return {
    name: 'call',
    run: async (session, plan) => {
      await session.query(`BEGIN ISOLATION LEVEL ${isolation}`);
      return engine.executions.submit(pick(plan), {
        executor: (text, params) => session.query(text, params),
      });
    },
  };
}

const all = ({ requests }: Plan): SubmitRequest[] => requests;
const backwards = ({ requests }: Plan): SubmitRequest[] => requests.toReversed();

function told(outcome: Interleaving, session: string): string {
  return stepValue<SubmitResult[]>(outcome, `${session}.call`)
    .map((answer) => answer.outcome)
    .join(', ');
}

const idsTold = (outcome: Interleaving, session: string): string[] =>
  stepValue<SubmitResult[]>(outcome, `${session}.call`).map(({ executionId }) => executionId);

/** Executions of the plan's kind besides the one that created its route, and the keys that stand for one. */
async function made({ kind }: Plan): Promise<{ executions: number; keys: number }> {
  const found = await database.query<{ executions: number; keys: number }>(
    `SELECT count(*)::int - 1 AS executions, count(i.key)::int AS keys
     FROM ff_execution e JOIN ff_route r USING (route_id) LEFT JOIN ff_idempotency i USING (execution_id)
     WHERE r.kind = $1`,
    [kind],
  );
  return found.rows[0]!;
}

function race(spec: Omit<RaceSpec<Plan>, 'connect'>): Promise<Interleaving[]> {
  return runRace<Plan>({
    ...spec,
    connect: () => database.connect(),
    check: async (outcome, plan) => {
      expect(outcome.deadlocks, 'deadlocks').toBe(0);
      await spec.check(outcome, plan);
    },
  });
}

describe('two submits with one key', () => {
  it('create one execution: the second waits and gets the first one’s id; with a lookup first, both would submit', async () => {
    const outcomes = await race({
      setup: () => planned(1),
      sessions: { a: [submitting(all), 'COMMIT'], b: [submitting(all), 'COMMIT'] },
      check: async (outcome, plan) => {
        const [first, second] = isBefore(outcome, 'a.call', 'b.call') ? ['a', 'b'] : ['b', 'a'];
        expect(told(outcome, first!)).toBe('submitted');
        expect(told(outcome, second!)).toBe('duplicate');
        expect(idsTold(outcome, second!)).toEqual(idsTold(outcome, first!));
        expect(await made(plan)).toEqual({ executions: 1, keys: 1 });
      },
    });
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_idempotency']);
  });

  it('of which the first is rolled back: the second submits and gets its own id', async () => {
    await race({
      setup: () => planned(1),
      sessions: { a: [submitting(all), 'ROLLBACK'], b: [submitting(all), 'COMMIT'] },
      check: async (outcome, plan) => {
        expect(told(outcome, 'b')).toBe('submitted');
        expect(await made(plan)).toEqual({ executions: 1, keys: 1 });
        expect(await engine.executions.submit(plan.requests)).toMatchObject([
          { outcome: 'duplicate', executionId: idsTold(outcome, 'b')[0] },
        ]);
      },
    });
  });

  it('and another body: the second waits and is refused, and its call writes nothing', async () => {
    await race({
      setup: () => planned(2),
      sessions: {
        a: [submitting(({ requests }) => requests.slice(1)), 'COMMIT'],
        b: [submitting(({ requests }) => [requests[0]!, { ...requests[1]!, payload: 'other' }]), 'ROLLBACK'],
      },
      permutations: [['a.call', 'b.call', 'a.COMMIT', 'b.ROLLBACK']],
      check: async (outcome, plan) => {
        expect(outcome.waited).toEqual(['b.call']);
        expect(outcome.results['b.call']).toMatchObject({ ok: false, code: 'idempotency_key_reused' });
        expect(await made(plan)).toEqual({ executions: 1, keys: 1 });
      },
    });
  });

  it('at REPEATABLE READ: a submit that cannot see the first must retry, and does not report success', async () => {
    await race({
      setup: () => planned(1),
      sessions: {
        a: [submitting(all), 'COMMIT'],
        b: [submitting(all, 'REPEATABLE READ'), 'ROLLBACK'],
      },
      permutations: [['a.call', 'b.call', 'a.COMMIT', 'b.ROLLBACK']],
      check: async (outcome, plan) => {
        expect(outcome.waited).toEqual(['b.call']);
        expect(outcome.results['b.call']).toMatchObject({ ok: false, code: 'retry_transaction' });
        expect(await made(plan)).toEqual({ executions: 1, keys: 1 });
      },
    });
  });
});

describe('two batches with the same keys in opposite order', () => {
  it('do not deadlock, even while another session holds one in the middle', async () => {
    const outcomes = await race({
      setup: () => planned(3),
      sessions: {
        blocker: [submitting(({ requests }) => requests.slice(1, 2)), 'ROLLBACK'],
        a: [submitting(all), 'COMMIT'],
        b: [submitting(backwards), 'COMMIT'],
      },
      check: async (outcome, plan) => {
        const answers = [told(outcome, 'a'), told(outcome, 'b')].toSorted();
        expect(answers).toEqual(['duplicate, duplicate, duplicate', 'submitted, submitted, submitted']);
        expect(idsTold(outcome, 'b').toReversed()).toEqual(idsTold(outcome, 'a'));
        expect(await made(plan)).toEqual({ executions: 3, keys: 3 });
      },
    });
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_idempotency']);
  });
});

/** An expired key whose execution has ended. */
async function outlived(count: number): Promise<Plan & { first: string[] }> {
  const plan = await planned(count, { policy: { dedupWindow: WINDOW_MS } });
  const [done] = await engine.executions.submit(plan.requests.slice(0, 1));
  await engine.cancel(done!.executionId, { reason: 'over' });
  await database.moveClock(WINDOW_MS);
  return { ...plan, first: [done!.executionId] };
}

describe('an expired key', () => {
  it('is taken over by one of two submits', async () => {
    await race({
      setup: () => outlived(1),
      sessions: { a: [submitting(all), 'COMMIT'], b: [submitting(all), 'COMMIT'] },
      check: async (outcome, plan) => {
        expect([told(outcome, 'a'), told(outcome, 'b')].toSorted()).toEqual(['duplicate', 'submitted']);
        expect(idsTold(outcome, 'a')).toEqual(idsTold(outcome, 'b'));
        expect(idsTold(outcome, 'a')).not.toEqual(plan['first']);
        expect(await made(plan)).toEqual({ executions: 2, keys: 1 });
      },
    });
  });

  it('that is being removed: a submit with it waits, and has the key afterwards', async () => {
    const removing: Steps[number] = {
      name: 'remove',
      run: async (session) => {
        await session.query('BEGIN');
        return forgetKeys({ ...context.database, pool: session.client as never }, 100, AGAIN_MS);
      },
    };
    await race({
      setup: () => outlived(1),
      sessions: { forget: [removing, 'COMMIT'], a: [submitting(all), 'COMMIT'] },
      check: async (outcome, plan) => {
        expect(told(outcome, 'a')).toBe('submitted');
        expect(await made(plan)).toEqual({ executions: 2, keys: 1 });
      },
    });
  });

  it('that is removed while its next submit waits for another key still stands for what was submitted', async () => {
    await race({
      setup: () => outlived(2),
      sessions: {
        rival: [submitting(({ requests }) => requests.slice(1)), 'ROLLBACK'],
        a: [submitting(all), 'COMMIT'],
        forget: [{ name: 'remove', run: () => forgetKeys(context.database, 100, AGAIN_MS) }],
      },
      permutations: [['rival.call', 'a.call', 'forget.remove', 'rival.ROLLBACK', 'a.COMMIT']],
      check: async (outcome, plan) => {
        expect(outcome.waited).toEqual(['a.call']);
        expect(told(outcome, 'a')).toBe('submitted, submitted');
        const again = await engine.executions.submit(plan.requests);
        expect(again.map((answer) => answer.outcome)).toEqual(['duplicate', 'duplicate']);
      },
    });
  });

  it('is not taken over when a running replay of its execution comes first', async () => {
    await race({
      setup: async () => {
        const plan = await outlived(1);
        return { ...plan, uuid: plan.first[0]!.split('}:')[1] };
      },
      sessions: {
        replay: [
          {
            name: 'call',
            run: async (session, plan) => {
              await session.query('BEGIN');
              await session.query(
                `SELECT * FROM ff_replay(ARRAY[$1::uuid], ARRAY(SELECT partition_key FROM ff_execution
                   WHERE execution_id = $1), NULL, false, 'why', 'me', 10)`,
                [plan['uuid']],
              );
            },
          },
          'COMMIT',
        ],
        a: [submitting(all), 'COMMIT'],
      },
      check: async (outcome, plan) => {
        const replayed = isBefore(outcome, 'replay.COMMIT', 'a.call');
        expect(told(outcome, 'a')).toBe(replayed ? 'duplicate' : 'submitted');
        expect((await made(plan)).keys).toBe(1);
      },
    });
  });
});
