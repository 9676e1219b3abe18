/**
 * The package as it is published: packed, installed in an empty folder, compiled against by a strict program under
 * both ways TypeScript resolves modules, and run. Needs a built `dist`.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { emptyDatabase } from '../setup/database.ts';
import { copyProgram, installPacked, type Consumer } from './consumer.ts';

const MODULES = {
  nodenext: { module: 'nodenext', outDir: 'out' },
  bundler: { module: 'esnext', moduleResolution: 'bundler', noEmit: true },
};

const COMPILER = ['typescript', '@types/node'];
const DATABASE_LIBRARIES = ['@types/pg', 'postgres', 'kysely', 'drizzle-orm'];

let consumer: Consumer;
beforeAll(async () => {
  consumer = await installPacked([...COMPILER, ...DATABASE_LIBRARIES]);
});
afterAll(() => consumer?.remove());

test('the package contains code, declarations, SQL and documents, and no sources or tests', () => {
  expect(consumer.files).toEqual(
    expect.arrayContaining([
      'dist/index.js',
      'dist/index.d.ts',
      'dist/adapters/index.js',
      'dist/adapters/index.d.ts',
      'dist/testing/index.js',
      'dist/cli/main.js',
      'sql/migrations/0001_create_executions.sql',
      'docs/adapters.md',
      'LICENSE',
      'README.md',
    ]),
  );
  expect(consumer.files.filter((path) => /\.test\.|^src\/|^tests\//.test(path))).toEqual([]);
});

test.each(Object.entries(MODULES))(
  'a strict program compiles with module resolution %s, and its mistakes do not',
  async (_, settings) => {
    await copyProgram(consumer, 'program.ts');
    await copyProgram(consumer, 'testing.ts');
    expect(await consumer.compile(settings, ['program.ts', 'testing.ts'])).toBe('');
  },
);

test('the compiled program runs with nothing but what the package declares', async () => {
  await using database = await emptyDatabase();
  await copyProgram(consumer, 'program.ts');
  expect(await consumer.compile(MODULES.nodenext, ['program.ts'])).toBe('');
  expect(JSON.parse(await consumer.run('out/program.js', { DATABASE_URL: database.url }))).toEqual({
    result: { total: 48, paid: true },
    prices: [1, 2],
    end: 'cancelled',
    bad: 'function',
    error: 'ExecutionFailed',
  });
});

test('a program that does not use pg does not need the types of pg', async () => {
  const bare = await installPacked(COMPILER);
  try {
    await bare.write(
      'bare.ts',
      `import { connect, task } from 'flowfabric';
       import { kyselyTransactor } from 'flowfabric/adapters';
       export const used = [connect, task('a'), kyselyTransactor];`,
    );
    expect(await bare.compile(MODULES.nodenext, ['bare.ts'])).toBe('');
  } finally {
    await bare.remove();
  }
});

describe('the page about adapters', () => {
  test('has snippets that compile unchanged', async () => {
    const snippets = await snippetsOf('docs/adapters.md');
    expect(snippets.length).toBeGreaterThan(4);
    // A client that Prisma generates from the reader's own schema is not available here.
    const compiled = snippets.filter((text) => !text.includes('prisma'));
    const names = compiled.map((_, index) => `snippet-${index}.ts`);
    await Promise.all(compiled.map((text, index) => consumer.write(names[index]!, text)));
    // The libraries' own declarations are not checked here.
    expect(await consumer.compile({ ...MODULES.bundler, skipLibCheck: true }, names)).toBe('');
  });
});

async function snippetsOf(page: string): Promise<string[]> {
  const text = await readFile(new URL(`../../${page}`, import.meta.url), 'utf8');
  return [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map((match) => match[1]!);
}
