/**
 * The answers of the functions that end executions as rows: one for each execution, with its outcome, and one for each
 * effect on members of flows.
 */
const row = (value: string): string =>
  `(${value} ->> 'uuid')::uuid AS execution_id, ${value} ->> 'outcome' AS outcome, coalesce((${value} ->> 'repeated')::boolean, false) AS repeated`;

/** `call` is of ff_complete, and its ids are the first parameter. */
export function completedBy(call: string): string {
  return `WITH c AS MATERIALIZED (SELECT * FROM ${call})
    SELECT i.id AS execution_id, 'completed' AS outcome, false AS repeated FROM c, unnest($1::uuid[]) i(id)
    WHERE NOT EXISTS (SELECT FROM json_array_elements(c.others) o WHERE o ->> 'uuid' = i.id::text)
    UNION ALL SELECT ${row('o')} FROM c, json_array_elements(c.others) o
    UNION ALL SELECT ${row('o')} FROM c, json_array_elements(c.effects) o`;
}

/** `call` is of ff_release. */
export function releasedBy(call: string): string {
  return `WITH c AS MATERIALIZED (SELECT * FROM ${call})
    SELECT ${row('o')} FROM c, json_array_elements(c.answers) o
    UNION ALL SELECT ${row('o')} FROM c, json_array_elements(c.others) o`;
}

/** `call` is of ff_fail. */
export function failedBy(call: string): string {
  return `${releasedBy(call)}
    UNION ALL SELECT ${row('o')} FROM c, json_array_elements(c.effects) o`;
}
