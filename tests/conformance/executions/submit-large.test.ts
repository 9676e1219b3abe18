/**
 * The largest submit call. It runs on a database without assertions: those check row by row and would take most of the
 * time.
 */
import { expect, it } from 'vitest';
import { plainDatabase } from '../../setup/database.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench(plainDatabase);

it('ten thousand executions of one call are all stored', async () => {
  const kind = newKind();
  const answers = await bench.engine.executions.submit(
    Array.from({ length: 10_000 }, (_, index) => ({ kind, payload: { index } })),
  );
  expect(answers.every(({ outcome }) => outcome === 'submitted')).toBe(true);
  const expected = new Set(answers.map(({ executionId }) => executionId));
  expect(expected.size).toBe(10_000);
  for (let calls = 0; calls < 12 && expected.size > 0; calls += 1) {
    const claims = await bench.claim({ kinds: [kind], limit: 1_000 });
    for (const { executionId } of claims) expect(expected.delete(executionId)).toBe(true);
  }
  expect(expected.size).toBe(0);
});
