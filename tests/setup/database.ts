/**
 * Databases for the tests of this repository, copied from the templates of the run. Take one per file in beforeAll and
 * drop it in afterAll.
 */
import { inject } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../../src/testing/test-database.ts';

/** With the movable clock and the assertions. */
export function testDatabase(): Promise<TestDatabase> {
  const { url, template } = inject('testServer');
  return createTestDatabase({ serverUrl: url, template });
}

/** As in production: the database's clock, no assertions. */
export function plainDatabase(): Promise<TestDatabase> {
  const { url, plainTemplate } = inject('testServer');
  return createTestDatabase({ serverUrl: url, template: plainTemplate });
}

/** Without any of our tables, for tests that create their own. */
export function emptyDatabase(): Promise<TestDatabase> {
  return createTestDatabase({ serverUrl: inject('testServer').url, template: 'template1' });
}
