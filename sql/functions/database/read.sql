-- Runs one of the engine's reading statements with JIT off. The planner finds statements whose cost grows with the
-- data expensive enough to compile, and compiling takes seconds where reading takes milliseconds. It runs with the
-- caller's rights and, being STABLE, writes nothing. Parameters are strings, ($1)[n], which the statement casts.
CREATE OR REPLACE FUNCTION ff_read(p_text text, p_values text[]) RETURNS SETOF jsonb LANGUAGE plpgsql STABLE
SET jit = off SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY EXECUTE 'SELECT to_jsonb(x) FROM (' || p_text || ') x' USING p_values;
END $$;
