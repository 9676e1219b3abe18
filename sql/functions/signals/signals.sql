-- Waitpoints opened before the suspension, and the keys that sign tokens. Lock order: execution, then waitpoint.

-- Opens waitpoints while the execution runs, so that their tokens can be handed out before it suspends. Existing
-- waitpoints stay unchanged.
CREATE OR REPLACE FUNCTION ff_create_waitpoints(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_waitpoints jsonb, p_max_waitpoints integer
) RETURNS TABLE (
  outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, waitpoint_id uuid, token_id uuid, created_at_ms bigint,
  kid text, secret_print text, token_expires_at_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_fault text;
BEGIN
  PERFORM ff_require_read_committed();
  IF cardinality(ff_lock_leased(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch])) = 0 THEN
    RETURN QUERY
    SELECT f.outcome, f.lifecycle_phase, f.terminal_outcome, f.lease_epoch, NULL::uuid, NULL::uuid, NULL::bigint, NULL, NULL, NULL::bigint
    FROM ff_refusals('record', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  v_fault := ff_wait_fault(p_id, '[]', p_waitpoints, p_max_waitpoints);
  IF v_fault IS NOT NULL THEN
    RETURN QUERY SELECT v_fault, 'active', 'none', p_epoch, NULL::uuid, NULL::uuid, NULL::bigint, NULL, NULL, NULL::bigint;
    RETURN;
  END IF;
  PERFORM ff_open_waitpoints(p_id, p_partition, p_waitpoints);
  RETURN QUERY
  SELECT 'created', 'active', 'none', p_epoch, w.waitpoint_id, w.token_id, w.created_at_ms, w.kid, k.secret_print, w.token_expires_at_ms
  FROM jsonb_array_elements(p_waitpoints) j
  CROSS JOIN LATERAL (
    SELECT * FROM ff_waitpoint WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' OFFSET 0) w
  LEFT JOIN LATERAL (SELECT secret_print FROM ff_signing_key WHERE kid = w.kid OFFSET 0) k ON true;
END $$;

-- Revokes the issued tokens of a waitpoint; signals already delivered with them stay.
CREATE OR REPLACE FUNCTION ff_revoke_tokens(p_id uuid, p_partition smallint, p_name text, p_token_id uuid) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM ff_require_read_committed();
  PERFORM 1 FROM ff_execution WHERE execution_id = p_id AND partition_key = p_partition FOR UPDATE;
  UPDATE ff_waitpoint SET token_id = p_token_id, kid = NULL, token_expires_at_ms = NULL
  WHERE execution_id = p_id AND retired_by = 0 AND name = p_name AND partition_key = p_partition;
  RETURN FOUND;
END $$;

-- Whether tokens signed by a key with that secret are valid now. The grace period of an old key is enforced only here.
CREATE OR REPLACE FUNCTION ff_key_verifies(p_kid text, p_print text) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM ff_signing_key k WHERE k.kid = p_kid AND k.secret_print = p_print AND k.revoked_at_ms IS NULL
      AND (k.verify_until_ms IS NULL OR k.verify_until_ms > ff_now_ms()));
END $$;

-- The key that signs. If there is none, the offered one becomes it. How long its tokens are valid is recorded, to the
-- day, for its rotation.
CREATE OR REPLACE FUNCTION ff_current_key(p_kid text, p_print text, p_token_ms bigint) RETURNS TABLE (kid text, secret_print text) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  k ff_signing_key;
  v_until bigint;
  v_offered boolean := p_kid IS NULL;
BEGIN
  LOOP
    v_until := ff_now_ms() + p_token_ms;
    SELECT * INTO k FROM ff_signing_key x WHERE x.verify_until_ms IS NULL AND x.revoked_at_ms IS NULL;
    IF FOUND THEN
      EXIT WHEN k.tokens_until_ms >= v_until;
      UPDATE ff_signing_key x SET tokens_until_ms = greatest(x.tokens_until_ms, v_until + 86400000)
      WHERE x.kid = k.kid AND x.verify_until_ms IS NULL AND x.revoked_at_ms IS NULL;
      -- Otherwise the key was rotated meanwhile, and nothing is recorded yet for the one that signs now.
      EXIT WHEN FOUND;
    ELSE
      EXIT WHEN v_offered;
      INSERT INTO ff_signing_key (kid, secret_print, created_at_ms, tokens_until_ms)
      VALUES (p_kid, p_print, ff_now_ms(), v_until + 86400000) ON CONFLICT DO NOTHING;
      v_offered := true;
    END IF;
  END LOOP;
  RETURN QUERY SELECT k.kid, k.secret_print WHERE k.kid IS NOT NULL;
END $$;

-- Makes a new key the one that signs; the old one verifies for p_grace_ms more, or as long as one of its tokens is
-- valid. Keys unused for p_forget_ms are deleted.
CREATE OR REPLACE FUNCTION ff_rotate_key(p_kid text, p_print text, p_grace_ms bigint, p_forget_ms bigint) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  v_old text;
  v_now bigint;
BEGIN
  PERFORM ff_require_read_committed();
  DELETE FROM ff_signing_key WHERE coalesce(revoked_at_ms, verify_until_ms) <= ff_now_ms() - p_forget_ms;
  LOOP
    UPDATE ff_signing_key SET
      verify_until_ms = coalesce(ff_now_ms() + p_grace_ms, greatest(tokens_until_ms, ff_now_ms()))
    WHERE verify_until_ms IS NULL AND revoked_at_ms IS NULL RETURNING kid INTO v_old;
    -- A concurrent rotation's key is replaced too. Only that is a conflict: an existing key of this name fails.
    v_now := ff_now_ms();
    INSERT INTO ff_signing_key (kid, secret_print, created_at_ms, tokens_until_ms)
    VALUES (p_kid, p_print, v_now, v_now)
    ON CONFLICT ((true)) WHERE verify_until_ms IS NULL AND revoked_at_ms IS NULL DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  RETURN v_old;
END $$;

-- Ends a key at once. The signing key cannot be revoked: rotating it without grace ends it and replaces it.
CREATE OR REPLACE FUNCTION ff_revoke_key(p_kid text) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM ff_require_read_committed();
  PERFORM 1 FROM ff_signing_key WHERE kid = p_kid FOR UPDATE;
  IF NOT FOUND THEN RETURN 'not_found'; END IF;
  UPDATE ff_signing_key SET revoked_at_ms = ff_now_ms()
  WHERE kid = p_kid AND revoked_at_ms IS NULL AND verify_until_ms IS NOT NULL;
  IF FOUND THEN RETURN 'revoked'; END IF;
  RETURN (SELECT CASE WHEN revoked_at_ms IS NULL THEN 'is_current' ELSE 'already_revoked' END FROM ff_signing_key WHERE kid = p_kid);
END $$;
