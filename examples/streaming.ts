/**
 * An agent writes its answer word by word, in a process of its own that is killed in the middle. A reader leaves and comes back, and has
 * every word once.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  applyPatch,
  connect,
  foldStream,
  handle,
  migrate,
  startWorker,
  stream,
  task,
  type ChunkItem,
} from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const SENTENCES = ['Streams outlive their writer.', 'They outlive their reader too.', 'That is the point.'];

const answer = task('answer', {
  streams: { words: stream.durable<string>(), draft: stream.summary<{ sentences?: number }>() },
});

/** The agent: each sentence is a step, so that a finished one is not written again. */
const work = handle(answer, async (_, ctx) => {
  for (const [index, sentence] of SENTENCES.entries()) {
    await ctx.step('sentence', String(index), async () => {
      for (const word of sentence.split(' ')) {
        await ctx.streams.words.write(`${word} `);
        // The first one gets stuck here, so that it can be killed in the middle.
        const isStuck = ctx.attemptIndex === 0 && index === 1 && word === 'outlive';
        await delay(isStuck ? 60_000 : 30, undefined, { signal: ctx.signal });
      }
    });
    // Outside the step: taken back when the attempt ends, and patched again by the next one.
    await ctx.streams.draft.patch({ sentences: index + 1 });
  }
});

async function runAgent(databaseUrl: string): Promise<void> {
  const connection = await connect({ databaseUrl });
  // A short lease, so that the example does not wait long for a dead worker.
  const worker = startWorker(connection, { lease: 1_000, handlers: [work] });
  await once(process, 'disconnect');
  await worker.stop();
  await connection.close();
}

function startAgent(databaseUrl: string): ChildProcess {
  return fork(fileURLToPath(import.meta.url), ['agent'], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
  });
}

/** What a page shows: words in their order, without those that are written again. */
class Page {
  cursor: string | undefined;
  readonly #items: ChunkItem<string>[] = [];

  take(item: ChunkItem<string>): void {
    this.cursor = item.cursor;
    this.#items.push(item);
  }

  get words(): string[] {
    return foldStream(this.#items).map(({ payload }) => payload as string);
  }

  get text(): string {
    return this.words.join('');
  }
}

async function main(databaseUrl: string): Promise<void> {
  await migrate({ databaseUrl });
  const connection = await connect({ databaseUrl });
  const run = await connection.submit(answer, null);
  const page = new Page();

  const first = startAgent(databaseUrl);
  for await (const item of run.streams.words) {
    page.take(item);
    if (page.words.length === 6) break;
  }
  console.log('the reader leaves in the middle of the second sentence');

  first.kill('SIGKILL');
  await once(first, 'exit');
  const second = startAgent(databaseUrl);
  console.log('the agent was killed, and another one takes over');

  for await (const item of run.streams.words.tail({ after: page.cursor! })) {
    page.take(item);
    if (item.type === 'superseded') console.log(`the reader is back and keeps: ${page.text}`);
    if (item.type === 'closed') console.log(`closed: ${item.reason}`);
  }
  console.log(page.text);

  let draft: { sentences?: number } = {};
  for await (const item of run.streams.draft.watch()) {
    if (item.type === 'document') draft = item.document;
    if (item.type === 'patch') draft = applyPatch(draft, item.patch);
  }
  console.log(draft);

  second.disconnect();
  await once(second, 'exit');
  await connection.close();
}

if (process.argv[2] === 'agent') {
  await runAgent(process.env['DATABASE_URL']!);
} else {
  const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
  await main(server?.url ?? process.env['DATABASE_URL']!);
  await server?.stop();
}
