/**
 * Mailboxes as a handler and its senders see them: messages are kept from before the first wait, handed over in order,
 * each once, whatever happens to the workers, and answered on request.
 */
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import type { Connection } from '../../src/connect/connection.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import type { Json } from '../../src/contract/json.ts';
import type { Inbox, Message } from '../../src/define/messages.ts';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { workerPort } from '../../src/connect/port.ts';
import { AGAIN, newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';

const crew = useCrew();
const HOUR_MS = 3_600_000;

async function stateOf(engine: Connection, id: string): Promise<string | undefined> {
  return (await engine.executions.describe(id))?.state;
}

/** Submits a task with this handler and starts its worker. */
async function running(work: (ctx: TaskContext) => Promise<unknown>) {
  const engine = await crew.connect();
  const kind = task<null>(newKind(), AGAIN);
  const run = await engine.submit(kind, null);
  const worker = crew.work(engine, { handlers: [handle(kind, (_, ctx) => work(ctx))] });
  return { engine, run, worker, id: run.executionId };
}

async function suspended(work: (ctx: TaskContext) => Promise<unknown>) {
  const begun = await running(work);
  await expect.poll(() => stateOf(begun.engine, begun.id), SOON).toBe('suspended');
  return begun;
}

/** Receives until it is told to stop; returns what it received. */
async function untilStop(inbox: Inbox): Promise<Json[]> {
  const received: Json[] = [];
  for await (const { payload } of inbox) {
    if (payload === 'stop') return received;
    received.push(payload);
  }
  return [...received, 'idle'];
}

describe('a message', () => {
  test('that was sent before the handler began is received first, and later ones in order', async () => {
    const engine = await crew.connect();
    const kind = task<null>(newKind());
    const { executionId: id, result } = await engine.submit(kind, null);
    for (const n of [1, 2]) await engine.send(id, 'in', n);
    crew.work(engine, { handlers: [handle(kind, (_, ctx) => untilStop(ctx.inbox('in')))] });
    await expect.poll(() => stateOf(engine, id), SOON).toBe('suspended');
    for (const what of [3, 4, 'stop'])
      expect(await engine.send(id, 'in', what)).toMatchObject({ outcome: 'sent' });
    expect(await result()).toEqual([1, 2, 3, 4]);
  });

  test('reaches only its own mailbox', async () => {
    const { engine, id, run } = await suspended(async (ctx) => {
      const two = await ctx.receive('two');
      const one = await ctx.receive('one');
      return [two.payload, one.payload, two.mailbox, one.mailbox];
    });
    await engine.send(id, 'one', 1);
    await engine.send(id, 'two', 2);
    expect(await run.result()).toEqual([2, 1, 'two', 'one']);
  });

  test('with an id that was sent before is a duplicate, also after it was received', async () => {
    const { engine, id, run } = await suspended((ctx) => untilStop(ctx.inbox('in')));
    const again = () => engine.send(id, 'in', 'first', { id: 'a' });
    expect(await again()).toEqual({ outcome: 'sent', messageId: 'a', executionId: id });
    expect(await again()).toEqual({ outcome: 'duplicate', messageId: 'a', executionId: id });
    await expect.poll(() => stateOf(engine, id), SOON).toBe('suspended');
    expect(await again()).toEqual({ outcome: 'duplicate', messageId: 'a', executionId: id });
    await engine.send(id, 'in', 'stop');
    expect(await run.result()).toEqual(['first']);
    expect(await again()).toEqual({ outcome: 'duplicate', messageId: 'a', executionId: id });
  });

  test('is handed over once, though its attempt fails after it', async () => {
    const seen: Json[][] = [];
    const { engine, id, run } = await running(async (ctx) => {
      const first = await ctx.receive('in');
      const second = await ctx.receive('in');
      seen.push([first.payload, second.payload]);
      if (ctx.attemptIndex === 0) throw new Error('once more');
      return (await ctx.receive('in')).payload;
    });
    for (const n of [1, 2, 3]) await engine.send(id, 'in', n);
    expect(await run.result()).toBe(3);
    expect(seen).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  test('to an execution that has ended is refused, and to one that does not exist is an error', async () => {
    const { engine, id, run } = await running(async () => 'done');
    await run.result();
    expect(await engine.send(id, 'in', 1)).toEqual({ outcome: 'not_active', terminalOutcome: 'success' });
    const nobody = `${id.slice(0, -12)}000000000000`;
    await expect(engine.send(nobody, 'in', 1)).rejects.toMatchObject({ code: 'not_found' });
    await expect(engine.send('{fp:9}:nobody', 'in', 1)).rejects.toMatchObject({ code: 'invalid_id' });
  });

  test('that nobody received is counted in the completion event and stays readable', async () => {
    const { engine, id, run } = await suspended(async (ctx) => (await ctx.receive('stop')).payload);
    const feed = await engine.events.subscribeCompletions({ from: 'now' });
    await engine.send(id, 'in', { unread: true }, { id: 'lost' });
    await engine.send(id, 'stop', null);
    expect(await run.result()).toBe(null);
    const { value: event } = await feed[Symbol.asyncIterator]().next();
    expect(event).toMatchObject({ executionId: id, type: 'success', unreadMessages: 1 });
    await feed.close();
    const { messages } = (await engine.executions.describe(id, { include: ['messages'] }))!;
    expect(messages).toMatchObject({
      truncated: false,
      items: [
        { mailbox: 'stop', payload: null, handedAtMs: expect.any(Number) },
        { mailbox: 'in', messageId: 'lost', payload: { unread: true }, handedAtMs: null },
      ],
    });
  });

  test('over a limit is refused before anything is written', async () => {
    const { engine, id } = await suspended((ctx) => untilStop(ctx.inbox('in')));
    const huge = 'x'.repeat(70_000);
    await expect(engine.send(id, 'other', huge)).rejects.toMatchObject({ code: 'payload_too_large' });
    await expect(engine.send(id, '', 1)).rejects.toMatchObject({ code: 'invalid_input', field: 'mailbox' });
    await crew.database.query('UPDATE ff_mailbox SET pending = 10000 WHERE execution_id = $1', [uuidOf(id)]);
    await engine.send(id, 'other', 1);
    await crew.database.query('UPDATE ff_mailbox SET pending = 10000 WHERE execution_id = $1', [uuidOf(id)]);
    expect(await engine.send(id, 'other', 2)).toEqual({ outcome: 'too_many' });
  });
});

describe('receiving', () => {
  test('with a timeout returns undefined when no message came, and the next call waits anew', async () => {
    const { engine, id, run } = await suspended(async (ctx) => {
      const none = await ctx.receive('in', { timeout: '1h' });
      const some = await ctx.receive('in', { timeout: '1h' });
      return [none === undefined, some?.payload ?? null];
    });
    await crew.database.moveClock(HOUR_MS);
    await workerPort(engine).fireTimers();
    await expect.poll(() => engine.executions.listSteps(id), SOON).toHaveLength(2);
    await engine.send(id, 'in', 'late');
    expect(await run.result()).toEqual([true, 'late']);
  });

  test('an inbox ends when it was idle for long enough', async () => {
    const { engine, id, run } = await suspended((ctx) => untilStop(ctx.inbox('in', { idle: '1h' })));
    await engine.send(id, 'in', 1);
    await expect.poll(() => engine.executions.listSteps(id), SOON).toHaveLength(2);
    await expect.poll(() => stateOf(engine, id), SOON).toBe('suspended');
    await crew.database.moveClock(HOUR_MS);
    await workerPort(engine).fireTimers();
    expect(await run.result()).toEqual([1, 'idle']);
  });

  test('a schema parses the payload; a message that does not match can be passed over', async () => {
    const Command = z.object({ add: z.coerce.number() });
    const { engine, id, run } = await suspended(async (ctx) => {
      const failure = await ctx.receive('in', { schema: Command }).catch((error: unknown) => error);
      const { payload } = await ctx.receive('in', { schema: Command });
      expectTypeOf(payload).toEqualTypeOf<{ add: number }>();
      return [(failure as { code?: string }).code ?? null, payload.add];
    });
    await engine.send(id, 'in', 'rubbish');
    await engine.send(id, 'in', { add: '7' });
    expect(await run.result()).toEqual(['invalid_input', 7]);
  });

  test('refuses a bad call with a clear error', async () => {
    const { run } = await running(async (ctx) => {
      const faults: string[] = [];
      const told = (error: unknown) => faults.push((error as Error).message.replace(/^.*?: /, ''));
      await ctx.receive('').catch(told);
      await ctx.receive('in', 5 as never).catch(told);
      await ctx.receive('in', { timeout: 'soon' as never }).catch(told);
      await ctx.receive('in', { tiemout: 1 } as never).catch(told);
      return faults;
    });
    expect(await run.result()).toEqual([
      expect.stringContaining('ctx.receive needs a name first'),
      expect.stringContaining('takes the options of "in" as an object'),
      expect.stringContaining('options.timeout'),
      expect.stringContaining('tiemout'),
    ]);
  });

  test('from two mailboxes at once takes what comes first, and the other goes on waiting', async () => {
    const { engine, id, run } = await suspended(async (ctx) => {
      const a = ctx.receive('a');
      const b = ctx.receive('b');
      const first = await Promise.race([a, b]);
      return [first.mailbox, (await a).payload, (await b).payload];
    });
    await engine.send(id, 'b', 2);
    await engine.send(id, 'a', 1);
    expect(await run.result()).toEqual(['b', 1, 2]);
  });
});

describe('a run that has received as many messages as it may', () => {
  /** As if this many had been handed over before. */
  const handed = (id: ExecutionId, count: number) =>
    crew.database.query('UPDATE ff_mailbox SET handed = $2 WHERE execution_id = $1', [uuidOf(id), count]);

  test('stays suspended and says so, does not time out, and loses nothing', async () => {
    const { engine, id } = await suspended((ctx) => untilStop(ctx.inbox('in', { idle: '1h' })));
    await engine.send(id, 'other', 0);
    await handed(id, 1_000);
    expect(await engine.send(id, 'in', 1)).toMatchObject({ outcome: 'sent' });
    await crew.database.moveClock(2 * HOUR_MS);
    await workerPort(engine).fireTimers();
    expect(await stateOf(engine, id)).toBe('suspended');
    expect(await engine.executions.explain(id)).toMatchObject({
      holding: { gate: 'continue_as_needed', facts: { mailbox: 'in', received: 1_000 } },
    });
    const { messages } = (await engine.executions.describe(id, { include: ['messages'] }))!;
    expect(messages.items.map(({ payload }) => payload)).toEqual([0, 1]);
  });

  test('times out if there is no message', async () => {
    const { engine, id, run } = await suspended((ctx) => untilStop(ctx.inbox('in', { idle: '1h' })));
    await engine.send(id, 'other', 0);
    await handed(id, 1_000);
    await crew.database.moveClock(2 * HOUR_MS);
    await workerPort(engine).fireTimers();
    expect(await run.result()).toEqual(['idle']);
  });

  test('an inbox says from half of that on that the run should continue', async () => {
    const { engine, id, run } = await running(async (ctx) => {
      const inbox = ctx.inbox('in');
      const changes: [number, boolean][] = [[0, inbox.shouldContinue]];
      for await (const { payload } of inbox) {
        if (inbox.shouldContinue !== changes.at(-1)![1])
          changes.push([payload as number, inbox.shouldContinue]);
        if (payload === 501) return changes;
      }
      return null;
    });
    await Promise.all(Array.from({ length: 501 }, (_, n) => engine.send(id, 'in', n + 1)));
    expect(await run.result()).toEqual([
      [0, false],
      [500, true],
    ]);
  });
});

describe('a request', () => {
  test('resolves with the reply; the same id returns the same one, also after the end', async () => {
    const replied: number[] = [];
    const { engine, id, run } = await suspended(async (ctx) => {
      for await (const message of ctx.inbox<number>('math')) {
        if (!message.wantsReply) return null;
        replied.push(message.payload);
        await message.reply({ twice: 2 * message.payload });
        await message.reply('a second reply');
      }
      return null;
    });
    const ask = (n: number, key: string) => engine.request<{ twice: number }>(id, 'math', n, { id: key });
    expect(await ask(4, 'four')).toEqual({ twice: 8 });
    expect((await ask(5, 'five')).twice).toBe(10);
    expect(await ask(99, 'four')).toEqual({ twice: 8 });
    await engine.send(id, 'math', 0);
    await run.result();
    expect(await ask(99, 'four')).toEqual({ twice: 8 });
    await expect(ask(6, 'six')).rejects.toMatchObject({ code: 'execution_ended' });
    expect(new Set(replied)).toEqual(new Set([4, 5]));
  });

  test('keeps its first reply though a later attempt replies something else', async () => {
    const { engine, id, run } = await suspended(async (ctx) => {
      const message = await ctx.receive('in');
      await message.reply(ctx.attemptIndex);
      if (ctx.attemptIndex === 0) throw new Error('once more');
      return null;
    });
    expect(await engine.request(id, 'in', 1, { id: 'r' })).toBe(0);
    await run.result();
    expect(await engine.request(id, 'in', 1, { id: 'r' })).toBe(0);
  });

  test('fails when the execution ends without a reply, and may stop waiting sooner', async () => {
    const { engine, id } = await suspended(async (ctx) => ctx.receive('stop'));
    await expect(engine.request(id, 'in', 1, { timeout: 1, id: 'r' })).rejects.toMatchObject({
      code: 'no_reply',
    });
    const waiting = engine.request(id, 'in', 1, { id: 'r' }).catch((error: unknown) => error);
    await engine.cancel(id, { by: 'ann', reason: 'over' });
    expect(await waiting).toMatchObject({ code: 'execution_ended' });
  });

  test('is answered by a worker of another connection', async () => {
    const { id } = await suspended(async (ctx) => {
      const message = await ctx.receive('in');
      await message.reply(null);
      return null;
    });
    const other = await crew.connect();
    expect(await other.request(id, 'in', 'ping')).toBe(null);
  });
});

test('types: a message without options has JSON, and a timeout may return nothing', () => {
  const check = (ctx: TaskContext, engine: Connection, id: ExecutionId) => {
    expectTypeOf(ctx.receive('in')).toEqualTypeOf<Promise<Message<Json>>>();
    expectTypeOf(ctx.receive('in', { timeout: 1 })).toEqualTypeOf<Promise<Message<Json> | undefined>>();
    expectTypeOf(ctx.inbox('in')).toEqualTypeOf<Inbox<Json>>();
    expectTypeOf(engine.request<{ at: Date }>(id, 'in')).toEqualTypeOf<Promise<{ at: string }>>();
  };
  expect(check).toBeTypeOf('function');
});
