/**
 * What the documents show is what a reader types: their programs are compiled as they stand against the packed package, and those of
 * the quickstart are run until they exit.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { emptyDatabase } from '../setup/database.ts';
import { patiently } from '../setup/patience.ts';
import { installPacked, type Consumer } from './consumer.ts';

const PROGRAM = { module: 'nodenext', outDir: 'out' };
const LIMIT = { timeout: patiently(120_000) };

/** What fragments refer to: the reader's own, or introduced in the text around them. */
const CONTEXT = `
import type { CompletionEvent, Connection, EngineError, EventHandler, FeedEvent, SqlTransaction, Task, TaskContext, TaskHandler, Worker } from 'flowfabric';
import type { Claim } from 'flowfabric/protocol';
import type { Client } from 'pg';
declare global {
  const connection: Connection;
  const ctx: TaskContext;
  const client: Client;
  const charge: Task<{ orderId: string }, { orderId: string }, { receipt: string }>;
  const chargeCard: Task<{ orderId: string }, void>;
  const sendMail: Task<{ about: string }, void>;
  const customer: string;
  const error: EngineError;
  const event: CompletionEvent;
  const events: readonly FeedEvent[];
  const executionId: string;
  const flowId: string;
  const handler: EventHandler;
  const handlers: TaskHandler[];
  const lastCursor: string;
  const lease: Claim;
  const model: { stream(question: string): AsyncIterable<string> };
  const orderId: string;
  const orders: string[];
  const pages: string[];
  const question: string;
  const signal: AbortSignal;
  const tx: SqlTransaction;
  const url: string;
  const worker: Worker;
  const PAGE_WITH_A_BUTTON: string;
  function askBank(request: { orderId: string; callback: string }): Promise<void>;
  function askModel(input: { model: string; question: string }): Promise<{ text: string }>;
  function handleEvent(event: FeedEvent, tx: SqlTransaction): Promise<void>;
  function loadCursor(): Promise<string | undefined>;
  function readPages(url: string): Promise<string[]>;
  function saveCursor(cursor: string): Promise<void>;
  function show(payload: unknown): void;
}
`;

/** Those of adapters.md need the libraries they are about, and are compiled with the package. */
const PAGES = [
  'README.md',
  ...['tasks', 'signals', 'streams', 'flows', 'events', 'operations', 'observability', 'testing'].map(
    (name) => `docs/${name}.md`,
  ),
];

let consumer: Consumer;
beforeAll(async () => {
  consumer = await installPacked(['typescript', '@types/node', '@types/pg', 'zod']);
});
afterAll(() => consumer?.remove());

/** The programs of a page by their file: those that name one in their first line, and fragments named after the page. */
async function programsOf(page: string): Promise<Map<string, string>> {
  const text = await readFile(new URL(`../../${page}`, import.meta.url), 'utf8');
  const blocks = [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map((match) => match[1]!);
  return new Map(
    blocks.map((block, index) => [
      /^\/\/ (\w+\.ts)\n/.exec(block)?.[1] ?? `${basename(page, '.md')}-${index}.ts`,
      `${block}\nexport {};\n`,
    ]),
  );
}

async function writeAll(programs: ReadonlyMap<string, string>): Promise<string[]> {
  for (const [name, text] of programs) await consumer.write(name, text);
  await consumer.write('context.d.ts', CONTEXT);
  return ['context.d.ts', ...programs.keys()];
}

test('the programs of all pages compile as they stand', LIMIT, async () => {
  const pages = await Promise.all(PAGES.map(programsOf));
  expect(pages.filter(({ size }) => size === 0)).toEqual([]);
  const programs = new Map(pages.flatMap((page) => [...page]));
  expect(await consumer.compile({ ...PROGRAM, noEmit: true }, await writeAll(programs))).toBe('');
});

/** Stands for the page of the quickstart: there may be no network where this runs. */
async function serveText(): Promise<string> {
  const server: Server = createServer((_, response) => response.end('seven words are what this page has'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

function start(file: string, args: string[], databaseUrl: string) {
  const child = spawn(process.execPath, [join(consumer.folder, 'out', file), ...args], {
    cwd: consumer.folder,
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [printed, logged] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (logged += chunk.toString()));
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, printed, logged }));
  return { child, ended };
}

test('the quickstart of the README runs, and its programs exit with 0', LIMIT, async () => {
  await using database = await emptyDatabase();
  const all = await programsOf('README.md');
  const files = ['tasks.ts', 'database.ts', 'worker.ts', 'app.ts'];
  await writeAll(new Map(files.map((name) => [name, all.get(name)!])));
  expect(await consumer.compile(PROGRAM, files)).toBe('');
  const worker = start('worker.js', [], database.url);
  await expect
    .poll(async () => (await database.query(`SELECT to_regclass('public.summaries') AS made`)).rows, {
      timeout: patiently(30_000),
    })
    .toEqual([{ made: 'public.summaries' }]);
  const app = start('app.js', [await serveText()], database.url);
  expect(await app.ended).toEqual({ code: 0, printed: '7 seven words are what this page has\n', logged: '' });
  worker.child.kill('SIGTERM');
  const { code, logged } = await worker.ended;
  expect(code).toBe(0);
  expect(JSON.parse(logged)).toMatchObject({ msg: 'Worker started.', tasks: ['summarise'], slots: 20 });
});
