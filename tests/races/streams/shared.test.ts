/**
 * The races of streams once more, as the engine sends appends: with the function that appends to many streams at once,
 * and the function for one stream after it where it leaves a call out; and with the function for a single durable frame.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, leased, transaction, type Arena } from '../arena.ts';
import {
  append,
  appendAndComplete,
  appendAndTrim,
  appendTwice,
  expectSound,
  followTwo,
  patchTwice,
  payloadsOf,
} from './races.ts';

const SIGNATURE = `(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_modes text[], p_encodings text[], p_types text[],
  p_correlations text[], p_step_names text[], p_step_keys text[], p_step_tries integer[], p_payloads bytea[], p_ttl_ms bigint,
  p_floor integer, p_ceiling integer, p_alpha double precision, p_max_document integer
) RETURNS TABLE (outcome text, lease_epoch bigint, ts_ms bigint, last_seq bigint) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column`;
const OTHERWISE = `
    RETURN QUERY
    SELECT f.outcome, f.lease_epoch, f.ts_ms, f.last_seq
    FROM ff_append_frames(p_id, p_partition, p_attempt, p_epoch, p_append_id, p_modes, p_encodings, p_types, p_correlations, p_step_names,
      p_step_keys, p_step_tries, p_payloads, p_ttl_ms, p_floor, p_ceiling, p_alpha, p_max_document) f;`;

/** Without a limit of its wait: a race keeps transactions open for as long as it likes. */
const SHARED = `
CREATE FUNCTION shared_append${SIGNATURE}
DECLARE
  v_patches integer[] := array_positions(p_modes, 'summary');
  v_lists text[];
BEGIN
  v_lists := string_to_array(ff_append_streams(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], ARRAY[p_append_id],
    ARRAY[cardinality(p_modes)], ARRAY[cardinality(array_positions(p_modes, 'best_effort'))],
    ARRAY[(SELECT sum(octet_length(p)) FROM unnest(p_payloads) p)::bigint], ARRAY(SELECT 1 FROM unnest(p_modes)),
    ARRAY(SELECT n::integer FROM unnest(p_modes) WITH ORDINALITY u(m, n) ORDER BY n),
    ARRAY(SELECT array_position(v_patches, n::integer) - cardinality(v_patches) FROM unnest(p_modes) WITH ORDINALITY u(m, n) ORDER BY n),
    p_modes::ff_frame_mode[], p_encodings::ff_frame_encoding[], p_types, p_correlations, p_step_names, p_step_keys, p_step_tries,
    ARRAY(SELECT (sum(octet_length(p)) OVER (ORDER BY n) - octet_length(p))::integer FROM unnest(p_payloads) WITH ORDINALITY u(p, n) ORDER BY n),
    ARRAY(SELECT octet_length(p) FROM unnest(p_payloads) WITH ORDINALITY u(p, n) ORDER BY n),
    (SELECT string_agg(p, '' ORDER BY n) FROM unnest(p_payloads) WITH ORDINALITY u(p, n)), p_ttl_ms, p_floor, p_ceiling,
    p_alpha, p_max_document, 0), ';');
  IF v_lists[1] <> '' THEN
    RETURN QUERY SELECT 'appended', p_epoch, v_lists[2]::bigint, v_lists[3]::bigint;
  ELSE ${OTHERWISE}
  END IF;
END $$`;

const SINGLE = `
CREATE FUNCTION single_append${SIGNATURE}
DECLARE
  v_answer text[];
BEGIN
  IF p_modes <> '{durable}' THEN ${OTHERWISE}
    RETURN;
  END IF;
  v_answer := string_to_array(ff_append_frame(p_id, p_partition, p_attempt, p_epoch, p_append_id, p_encodings[1]::ff_frame_encoding,
    p_types[1], p_correlations[1], p_step_names[1], p_step_keys[1], p_step_tries[1], p_payloads[1], NULL, NULL, NULL), ',');
  IF cardinality(v_answer) = 3 THEN
    RETURN QUERY SELECT 'appended', p_epoch, v_answer[1]::bigint, v_answer[2]::bigint;
  ELSE
    RETURN QUERY SELECT v_answer[1], nullif(v_answer[4], '')::bigint, NULL::bigint, NULL::bigint;
  END IF;
END $$`;

describe.each([
  ['shared_append', SHARED],
  ['single_append', SINGLE],
])('%s', (name, definition) => {
  let database: TestDatabase;
  let arena: Arena;

  beforeAll(async () => {
    database = await testDatabase();
    await database.query(definition);
    arena = arenaOn(database, { append: name });
  });
  afterAll(() => database?.drop());

  it('two appends wait for each other, and a follower sees their frames in commit order', async () => {
    expect(tablesWaitedOn(await followTwo(arena))).toContain('ff_stream_meta');
  });

  it('two first appends create one stream', async () => {
    await arena.race({
      given: leased(1),
      sessions: { a: transaction(append(arena)), b: transaction(append(arena)) },
      check: async (_, scene) => {
        expect(await payloadsOf(arena, scene)).toEqual(['x', 'x']);
        await expectSound(arena, scene);
      },
    });
  });

  it.each([
    ['an append and the end of its attempt: written before the close, or refused', appendAndComplete],
    ['the same append twice is one', appendTwice],
    ['two patches are both in the document', patchTwice],
    ['a trim leaves durable frames and the newest best-effort ones', appendAndTrim],
  ])('%s', async (_, race) => {
    await race(arena);
  });
});
