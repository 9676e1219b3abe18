/**
 * Messages to keys: to the execution that a key names now, or to one that is submitted under the key in the same commit.
 */
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import { workerPort } from '../../src/connect/port.ts';
import { newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';

const crew = useCrew();

/** An entity that adds up what it is sent, until it is told to stop, and replies with the sum. */
async function entity() {
  const engine = await crew.connect();
  const account = task(newKind(), { input: z.object({ balance: z.number() }), output: z.number() });
  crew.work(engine, {
    handlers: [
      handle(account, async ({ balance }, ctx) => {
        let sum = balance;
        for await (const message of ctx.inbox<number | 'stop'>('deposits')) {
          if (message.payload === 'stop') break;
          sum += message.payload;
          await message.reply(sum);
        }
        return sum;
      }),
    ],
  });
  return { engine, account, key: newKind() };
}

describe('a message to a key', () => {
  test('reaches the execution that the key names', async () => {
    const { engine, account, key } = await entity();
    const run = await engine.submit(account, { balance: 1 }, { key });
    expect(await engine.send(key, 'deposits', 2)).toMatchObject({
      outcome: 'sent',
      executionId: run.executionId,
    });
    expect(await engine.request(key, 'deposits', 3)).toBe(6);
    await run.send('deposits', 'stop');
    expect(await run.result()).toBe(6);
    expect(await engine.send(key, 'deposits', 1)).toEqual({
      outcome: 'not_active',
      terminalOutcome: 'success',
    });
  });

  test('is of one namespace', async () => {
    const { engine, account, key } = await entity();
    const own = await engine.submit(account, { balance: 10 }, { key, namespace: 'north' });
    await engine.submit(account, { balance: 20 }, { key });
    expect(await engine.request(key, 'deposits', 1, { namespace: 'north' })).toBe(11);
    expect(await engine.request(key, 'deposits', 1)).toBe(21);
    expect(await engine.send(key, 'deposits', 1, { namespace: 'north' })).toMatchObject({
      executionId: own.executionId,
    });
  });

  test('that names none is an error, and so is a namespace beside an id', async () => {
    const { engine, account, key } = await entity();
    await expect(engine.send(key, 'deposits', 1)).rejects.toMatchObject({ code: 'not_found' });
    const { executionId } = await engine.submit(account, { balance: 0 });
    await expect(engine.send(executionId, 'deposits', 1, { namespace: 'default' })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'options.namespace',
    });
  });
});

describe('a message that may start its receiver', () => {
  test('submits it once, whoever sends first, and all messages reach that one', async () => {
    const { engine, account, key } = await entity();
    const start = { task: account, input: { balance: 100 }, tags: { customer: '42' } };
    const sent = await Promise.all(
      Array.from({ length: 20 }, () => engine.send(key, 'deposits', 1, { start })),
    );
    const outcomes = sent.map(({ outcome }) => outcome).toSorted();
    expect(outcomes).toEqual([...Array.from({ length: 19 }, () => 'sent'), 'started']);
    expect(new Set(sent.map((one) => 'executionId' in one && one.executionId)).size).toBe(1);
    expect(await engine.request(key, 'deposits', 1, { start })).toBe(121);
    const { executions } = await engine.executions.list({ filter: { tags: { customer: '42' } } });
    expect(executions).toHaveLength(1);
  });

  test('submits another when the one before has finished', async () => {
    const { engine, account, key } = await entity();
    const start = { task: account, input: { balance: 0 } };
    expect(await engine.send(key, 'deposits', 'stop', { start })).toMatchObject({ outcome: 'started' });
    const first = (await engine.byKey(key))!;
    expect(await first.result()).toBe(0);
    expect(await engine.send(key, 'deposits', 5, { start })).toMatchObject({ outcome: 'started' });
    const second = (await engine.byKey(key))!;
    expect(second.executionId).not.toBe(first.executionId);
    await expect.poll(async () => (await second.describe())?.state, SOON).toBe('suspended');
  });

  test('submits another when the one that the key names ends while the message waits for it', async () => {
    const engine = await crew.connect();
    const [kind, key] = [newKind(), newKind()];
    const account = task<null>(kind);
    const first = await engine.submit(account, null, { key });
    const port = workerPort(engine);
    const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: 30_000 };
    const { claims } = await port.claim(request);
    const ending = await crew.database.connect();
    await ending.query('BEGIN');
    await ending.query(`SELECT FROM ff_complete(ARRAY[$1::uuid], ARRAY[$2::smallint], '{0}', '{1}', '{1}')`, [
      uuidOf(first.executionId),
      Number(/\d+/.exec(claims[0]!.executionId)![0]),
    ]);
    const sending = engine.send(key, 'in', 1, { start: { task: account, input: null } });
    const waiting = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ff_start_and_send%'
      AND datname = current_database()`;
    await expect.poll(async () => (await crew.database.query(waiting)).rowCount, SOON).toBe(1);
    await ending.query('COMMIT');
    const sent = await sending;
    expect(sent).toMatchObject({ outcome: 'started' });
    expect((await engine.byKey(key))!.executionId).not.toBe(first.executionId);
    expect(await first.result()).toBe(1);
  });

  test('with an id is sent once, also when the same call is made again', async () => {
    const { engine, account, key } = await entity();
    const send = () =>
      engine.send(key, 'deposits', 1, { id: 'once', start: { task: account, input: { balance: 0 } } });
    expect(await send()).toMatchObject({ outcome: 'started', messageId: 'once' });
    expect(await send()).toMatchObject({ outcome: 'duplicate', messageId: 'once' });
    expect(await engine.request(key, 'deposits', 1)).toBe(2);
  });

  test.each([
    ['an id', '{fp:1}:01890a5d-ac96-774b-bcce-b302099a8057', {}, 'options.start'],
    ['a key of its own', 'k', { key: 'other' }, 'options.start.key'],
    ['a namespace of its own', 'k', { namespace: 'n' }, 'options.start.namespace'],
    ['an unknown option', 'k', { odd: 1 }, 'options.start.odd'],
  ])('is refused with %s, and nothing is written', async (_, target, more, field) => {
    const { engine, account } = await entity();
    const start = { task: account, input: { balance: 0 }, ...more } as never;
    await expect(engine.send(target, 'deposits', 1, { start })).rejects.toMatchObject({ field });
    expect(await engine.byKey('k')).toBeNull();
  });

  test('is refused when the input does not match, or the payload is too large, and nothing is written', async () => {
    const { engine, account, key } = await entity();
    const odd = { task: account, input: { balance: 'much' } as never };
    await expect(engine.send(key, 'deposits', 1, { start: odd })).rejects.toMatchObject({
      code: 'invalid_input',
    });
    const start = { task: account, input: { balance: 1 } };
    await expect(engine.send(key, 'deposits', 'x'.repeat(70_000), { start })).rejects.toMatchObject({
      code: 'payload_too_large',
    });
    expect(await engine.byKey(key)).toBeNull();
    const other = task(newKind());
    await engine.submit(other, null, { key });
    await expect(engine.send(key, 'deposits', 1, { start })).rejects.toMatchObject({
      code: 'key_of_another_task',
    });
  });

  test('is typed by its task', async () => {
    const { engine, account } = await entity();
    const send = (): unknown =>
      // @ts-expect-error The input is not that of the task.
      engine.send('k', 'm', 1, { start: { task: account, input: { balance: 'x' } } });
    expectTypeOf(send).toBeFunction();
  });
});

test('a child is sent messages by its parent', async () => {
  const engine = await crew.connect();
  const [parent, child] = [task<null>(newKind()), task<null>(newKind())];
  crew.work(engine, {
    handlers: [
      handle(child, async (_, ctx) => (await ctx.receive('in')).payload),
      handle(parent, async (_, ctx) => {
        const spawned = await ctx.spawn(child, null);
        await ctx.step('tell', async () => (await spawned.send('in', { hello: 1 })).outcome);
        return spawned.result();
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  expect(await run.result()).toEqual({ hello: 1 });
});
