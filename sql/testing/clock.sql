-- Replaces the engine's clock with one that tests can move. The offset is a committed row, so a move reaches every
-- connection; the function is not inlined and takes a fresh snapshot on each call, so it also reaches one that is
-- waiting.
CREATE TABLE IF NOT EXISTS ff_clock (
  only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  offset_ms bigint NOT NULL DEFAULT 0
);
INSERT INTO ff_clock DEFAULT VALUES ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION ff_now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (SELECT offset_ms FROM ff_clock);
