/**
 * The tags of tracing are named twice: where SQL submits executions, and where a filter by tags is checked.
 */
import { expect, it } from 'vitest';
import { TRACE_TAGS } from '../../../src/contract/trace-context.ts';
import { useBench } from '../../conformance/open.ts';

const bench = useBench();

it('executions are listed by every tag except those of tracing', async () => {
  const { rows } = await bench.database.query<{ key: string; listed: boolean }>(
    'SELECT key, ff_is_listed_tag(key) AS listed FROM unnest($1::text[]) key',
    [[...TRACE_TAGS, 'trace', 'team']],
  );
  expect(rows.filter(({ listed }) => !listed).map(({ key }) => key)).toEqual(TRACE_TAGS);
});
