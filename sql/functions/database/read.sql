-- Runs a statement of the engine that reads, without compiling it to machine code: statements whose cost grows with what there is look
-- expensive enough for that to the planner, and compiling takes seconds where reading takes milliseconds. It may do what its caller
-- may, and nothing is written: it is STABLE. Parameters are texts, ($1)[n], for the statement to cast.
CREATE OR REPLACE FUNCTION ff_read(p_text text, p_values text[]) RETURNS SETOF jsonb LANGUAGE plpgsql STABLE
SET jit = off SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY EXECUTE 'SELECT to_jsonb(x) FROM (' || p_text || ') x' USING p_values;
END $$;
