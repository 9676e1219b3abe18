/**
 * Rows have the shape their statements declare: every statement that declares its columns is run on a real database,
 * and must return exactly the declared names. tests/plans/compiling.test.ts checks that the calls made here send every
 * statement.
 */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import type * as databaseModule from '../../../src/engine/database/database.ts';
import type * as uncompiledModule from '../../../src/engine/database/uncompiled.ts';
import type { Database, Statement } from '../../../src/engine/database/database.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';

interface Answered {
  doing: string;
  /** Undefined for a statement that declares none. */
  declared: readonly string[] | undefined;
  names: readonly string[];
}

const answers: Answered[] = [];

const DATABASE = '../../../src/engine/database/database.ts';
const READS = '../../../src/engine/database/uncompiled.ts';
type DatabaseModule = typeof databaseModule;
type UncompiledModule = typeof uncompiledModule;

async function watchedDatabase(original: () => Promise<DatabaseModule>): Promise<DatabaseModule> {
  const whole = await original();
  const run = async <Row>(database: Database, statement: Statement<Row>): Promise<Row[]> => {
    const query: Database['pool']['query'] = async (config) => {
      const answer = await database.pool.query(config);
      const { fields = [] } = answer as { fields?: { name: string }[] };
      answers.push({
        doing: statement.doing,
        declared: statement.columns?.names,
        names: fields.map(({ name }) => name),
      });
      return answer;
    };
    return whole.run(Object.assign(Object.create(database) as Database, { pool: { query } }), statement);
  };
  return { ...whole, run };
}

/** Rows of these are returned as JSON in one column. */
async function watchedReads(original: () => Promise<UncompiledModule>): Promise<UncompiledModule> {
  const whole = await original();
  const readUncompiled: UncompiledModule['readUncompiled'] = async (database, statement) => {
    const { doing, text, params } = statement;
    const asked = { text: `SELECT * FROM (${text}) x LIMIT 0`, values: [...params], types: undefined };
    const { fields } = (await database.pool.query(asked)) as unknown as { fields: { name: string }[] };
    const names = fields.map(({ name }) => name);
    answers.push({ doing, declared: statement.columns?.names, names });
    return whole.readUncompiled(database, statement);
  };
  return { ...whole, readUncompiled };
}

let test: TestDatabase;

/** Files of one process share their modules: the mocked ones are imported again, and reset afterwards. */
beforeAll(async () => {
  test = await plainDatabase();
  vi.resetModules();
  vi.doMock(DATABASE, watchedDatabase);
  vi.doMock(READS, watchedReads);
  const { openRecorder } = await import('../../plans/plan-recorder.ts');
  const { walk } = await import('../../plans/walk.ts');
  const { askStore } = await import('../../plans/asked.ts');
  const [walker, rival] = [await openRecorder(test, 'planned'), await openRecorder(test, 'planned')];
  await walk(walker, rival, 1);
  await askStore(walker);
});
afterAll(async () => {
  vi.doUnmock(DATABASE);
  vi.doUnmock(READS);
  vi.resetModules();
  await test?.drop();
});

it('rows have the declared names, and no others', () => {
  const declared = answers.filter((answer) => answer.declared !== undefined);
  const wrong = declared.filter(
    ({ declared: asked, names }) => asked!.toSorted().join() !== names.toSorted().join(),
  );
  expect(wrong).toEqual([]);
  expect(new Set(declared.map(({ doing }) => doing)).size).toBeGreaterThan(40);
});

it('rows with more than one column are declared', () => {
  const undeclared = answers.filter(({ declared, names }) => declared === undefined && names.length > 1);
  expect(undeclared.map(({ doing }) => doing)).toEqual([]);
});
