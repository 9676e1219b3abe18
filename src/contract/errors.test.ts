/**
 * Errors of the engine: what they carry, and what is printed of them.
 */
import { expect, it } from 'vitest';
import { EngineError } from './errors.ts';

it('an error has the details it was given, and no others', () => {
  const bare = new EngineError('closed', 'The engine was closed.');
  expect(Object.keys(bare).toSorted()).toEqual(['code', 'name']);
  expect([bare.field, bare.sqlState, bare.oldest, bare.cause]).toEqual(Array(4).fill(undefined));
  const cause = new Error('why');
  const full = new EngineError('database_error', 'No.', {
    field: 'a',
    sqlState: '42P01',
    oldest: '5',
    cause,
  });
  expect(full).toMatchObject({ code: 'database_error', field: 'a', sqlState: '42P01', oldest: '5', cause });
  expect(Object.keys(full)).not.toContain('cause');
});
