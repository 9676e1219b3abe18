/**
 * A completion that travels with a claim, against everybody else at the same lease, in every order. It wins and loses as
 * a completion on its own does, except that it never waits: while somebody holds the row, it is left to a later call.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, leased, meet, type Arena, type Scene } from '../arena.ts';
import { LEASE_MS, type Call } from '../calls.ts';
import { answersInTurn, answersMeeting, callOf, OPERATIONS } from './lease-answers.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** Completes the leases and claims from a queue that is empty; `left` for those that were not completed. */
function exchange({ leases }: Scene): Call {
  const arrays = [
    leases.map(({ id }) => id),
    leases.map(() => 7),
    leases.map(({ attempt }) => attempt),
    leases.map(({ epoch }) => epoch),
  ];
  return {
    sql: `WITH c AS MATERIALIZED (
        SELECT * FROM ff_complete_and_claim($1, $2, $3, $4, array_fill('{"done": true}'::jsonb, ARRAY[cardinality($1::uuid[])]),
          '{0}', '{NULL}', '{0}', 1, 'w', 'w-9', $5, ${LEASE_MS}))
      SELECT i.id AS execution_id, CASE WHEN c.told IS NULL THEN 'left' ELSE 'completed' END AS outcome, false AS repeated
      FROM c, unnest($1::uuid[]) i(id)
      WHERE NOT EXISTS (SELECT FROM json_array_elements(c.others) o WHERE o ->> 'uuid' = i.id::text)
      UNION ALL
      SELECT (o ->> 'uuid')::uuid, o ->> 'outcome', (o ->> 'repeated')::boolean FROM c, json_array_elements(c.others) o`,
    params: [...arrays, randomUUID()],
  };
}

describe('a completion with a claim', () => {
  it.each(OPERATIONS)('and %s: the first wins, and the completion waits for nobody', async (other) => {
    const [done, after] = answersInTurn(['complete', other]) as [string, string];
    const [first, refused] = answersInTurn([other, 'complete']) as [string, string];
    const behind = answersMeeting('complete', other);
    await meet(arena, {
      given: leased(1),
      a: exchange,
      b: ({ leases }) => callOf(arena.calls, other, leases),
      expected: {
        'a then b': { told: [done, after], waitsOn: null },
        'b meets a': { told: [behind.told[0]!, behind.told[1]!], waitsOn: behind.waitsOn },
        'b then a': { told: [refused, first], waitsOn: null },
        'a meets b': { told: ['left', first], waitsOn: null },
      },
    });
  });
});
