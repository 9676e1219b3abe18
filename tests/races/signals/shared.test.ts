/**
 * The races of a signal once more, with the function that delivers many at once, and the function for one signal after
 * it where it leaves a signal out, as the engine sends them.
 */
import { afterAll, beforeAll, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, type Arena } from '../arena.ts';
import { lastTwoSignals, signalAndSuspend } from './races.ts';

const SHARED = `
CREATE FUNCTION shared_deliver(
  p_id uuid, p_partition smallint, p_waitpoint uuid, p_waitpoint_name text, p_kid text, p_print text, p_token_expires_at_ms bigint,
  p_signal uuid, p_name text, p_source_type text, p_source_identity text, p_payload jsonb, p_idempotency_key text,
  p_is_checked boolean, p_max_signals integer, p_max_bytes bigint
) RETURNS TABLE (outcome text, effect text) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY
  SELECT a.outcome, a.effect
  FROM ff_deliver_signals(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_waitpoint], ARRAY[p_waitpoint_name], ARRAY[p_kid], ARRAY[p_print],
    ARRAY[p_token_expires_at_ms], ARRAY[p_signal], ARRAY[p_name], ARRAY[p_source_type], ARRAY[p_source_identity], ARRAY[p_payload],
    ARRAY[p_idempotency_key], ARRAY[p_is_checked], ARRAY[p_max_signals], ARRAY[p_max_bytes]) a WHERE a.outcome <> 'held';
  IF NOT FOUND THEN
    RETURN QUERY
    SELECT d.outcome, d.effect
    FROM ff_deliver_signal(p_id, p_partition, p_waitpoint, p_waitpoint_name, p_kid, p_print, p_token_expires_at_ms, p_signal, p_name,
      p_source_type, p_source_identity, p_payload, p_idempotency_key, p_is_checked, p_max_signals, p_max_bytes) d;
  END IF;
END $$`;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  await database.query(SHARED);
  arena = arenaOn(database, { deliver: 'shared_deliver' });
});
afterAll(() => database?.drop());

it('a signal and its suspension meet in any order: the signal is found, or it resumes the execution', async () => {
  await signalAndSuspend(arena);
});

it('of the last two signals one resumes the execution', async () => {
  await lastTwoSignals(arena);
});
