/**
 * The stage of the tests of redaction: runs with something planted wherever an execution may have a value, and what became
 * of it. Nothing is asserted here.
 */
import { expect } from 'vitest';
import { stream, task } from '../../src/define/index.ts';
import { handle } from '../../src/define/handlers.ts';
import { hintChannel } from '../../src/engine/database/names.ts';
import type { Connection, ExecutionId, Redaction } from '../../src/index.ts';
import { openTelemetry } from '../../src/worker/tracing.ts';
import { newKind, SOON, type Crew } from '../worker/crew.ts';

export const CARRYING = { listen: 'on', carryFrames: 'on' } as const;
/** In every planted value, whatever follows it. */
export const SECRET = 'hush';
export const secret = (where: string) => ({ card: { number: `${SECRET}-${where}`, kind: 'visa' } });
export type Card = ReturnType<typeof secret>;

export interface Stage {
  engine: Connection;
  done: Run;
  failed: Run;
  /** What the handler, its child and its caller got. */
  got: Record<string, unknown>;
  /** What the worker logged. */
  logged: string[];
  /** What others were notified with. */
  notified: string[];
}

export interface Run {
  id: ExecutionId;
  kind: string;
}

function definitions(redact: Redaction | undefined) {
  const terms = { events: 'all', ...(redact === undefined ? {} : { redact }) } as const;
  const streams = {
    words: stream.durable<string>(),
    cards: stream.durable<Card>(),
    raw: stream.durable<Uint8Array>(),
    state: stream.summary<Card>(),
  };
  return {
    child: task<Card, Card>(newKind(), terms),
    pay: task<Card & { fails: boolean }, Card, typeof streams>(newKind(), { ...terms, streams }),
  };
}

/** Runs one that succeeds and one that fails, with something planted everywhere. */
export async function play(crew: Crew, redact: Redaction | undefined): Promise<Stage> {
  const { pay, child } = definitions(redact);
  const [engine, elsewhere] = [await crew.connect(CARRYING), await crew.connect(CARRYING)];
  const topic = newKind();
  await engine.publish(topic, secret('topic'));
  const got: Record<string, unknown> = {};
  const logged: string[] = [];
  const note = (...said: unknown[]) => void logged.push(textOf(said));
  const log = { debug: note, info: note, warn: note, error: note };
  const notified = await listen(crew);
  crew.work(engine, {
    log,
    middleware: [await openTelemetry()],
    handlers: [
      handle(child, (input) => {
        got['child input'] = input;
        return secret('child-result');
      }),
      handle(pay, async (input, ctx) => {
        got['input'] = input;
        got['step'] = await ctx.step('fetch', () => secret('step'));
        await ctx.step('large', () => ({ ...secret('large'), rest: 'x'.repeat(3_000) }));
        ctx.progress({ percent: 10, message: `${SECRET}-progress` });
        await ctx.streams.words.write(`${SECRET}-word`);
        await ctx.streams.cards.write(secret('frame'));
        await ctx.streams.raw.write(Buffer.from(`${SECRET}-binary`));
        await ctx.streams.state.patch(secret('document'));
        await ctx.stream.flush();
        got['message'] = (await ctx.receive<Card>('commands')).payload;
        got['topic'] = (await ctx.topic<Card>(topic)).data;
        got['signal'] = (await ctx.waitFor<Card>('approval', { schema: {} })).payload;
        got['child result'] = await (await ctx.spawn(child, secret('child-input'))).result();
        if (input.fails) throw new TypeError(`${SECRET}-failure`, { cause: new Error(`${SECRET}-cause`) });
        return secret('result');
      }),
    ],
  });
  const submit = async (fails: boolean): Promise<Run> => {
    const run = await elsewhere.submit(pay, { ...secret('input'), fails }, { tags: { shown: 'tag' } });
    await engine.send(run.executionId, 'commands', secret('message'));
    const tail = elsewhere.streams.tail(run.executionId)[Symbol.asyncIterator]();
    void tail.next();
    await expect
      .poll(async () => (await engine.executions.describe(run.executionId))?.state, SOON)
      .toBe('suspended');
    await engine.send(run.executionId, 'commands', secret('unread'));
    await engine.waitpoints.approve(run.executionId, 'approval', { by: 'ada', payload: secret('signal') });
    const end = await run.result().catch((error: unknown) => error);
    got[fails ? 'failure' : 'result'] = end;
    if (!fails) {
      got['streams'] = textOf([
        await run.streams.state.read(),
        await take(run.streams.words, 1),
        await take(run.streams.cards, 1),
      ]);
    }
    await tail.return?.();
    return { id: run.executionId, kind: pay.name };
  };
  const done = await submit(false);
  const failed = await submit(true);
  return { engine, done, failed, got, logged, notified };
}

export async function listen(crew: Crew): Promise<string[]> {
  const notified: string[] = [];
  const client = await crew.database.connect();
  client.on('notification', ({ payload }) => void notified.push(payload ?? ''));
  await client.query(`LISTEN "${hintChannel(crew.database.schema)}"`);
  return notified;
}

async function take(items: AsyncIterable<unknown>, count: number): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const item of items) if (found.push(item) >= count) break;
  return found;
}

export async function all(items: AsyncIterable<unknown>): Promise<unknown[]> {
  return take(items, Infinity);
}

/** Bytes as the text they are, and errors with all they have. */
export function textOf(value: unknown): string {
  return (
    JSON.stringify(value, (_, each: unknown) => {
      if (typeof each === 'bigint') return String(each);
      if (each instanceof Uint8Array) return Buffer.from(each).toString();
      if (each instanceof Error) return [each.name, each.message, each.stack, each.cause, { ...each }];
      const bytes = each as { type?: unknown; data?: unknown } | null;
      if (bytes?.type === 'Buffer' && Array.isArray(bytes.data)) return Buffer.from(bytes.data).toString();
      return each;
    }) ?? ''
  );
}
