/**
 * What every adapter must do, as one suite: a submit and a step commit or roll back with the application's transaction.
 * Each library's file defines how to open it, write and begin a transaction; nothing here knows a particular library.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { connect } from '../../src/connect/connect.ts';
import type { Connection } from '../../src/connect/connection.ts';
import type { SqlExecutor, Transactor } from '../../src/contract/transactions.ts';
import { uuidV7 } from '../../src/contract/ids.ts';
import { task, type Task } from '../../src/define/task.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { handle, type HandlerFunction } from '../../src/define/handlers.ts';
import { startWorker } from '../../src/connect/worker.ts';
import type { Worker } from '../../src/worker/options.ts';
import { plainDatabase } from '../setup/database.ts';
import { AGAIN, newKind, SOON } from '../worker/crew.ts';

export interface Library<Tx> {
  /** The library's own transaction, as application code writes it. */
  transaction<Value>(work: (tx: Tx) => Promise<Value>): Promise<Value>;
  executor(tx: Tx): SqlExecutor;
  transactor: Transactor<Tx>;
  /** Adds a row to `public.booking` through the library. */
  write(tx: Tx, id: string): Promise<unknown>;
  /** Sends any statement through the library. */
  send(tx: Tx, statement: string): Promise<unknown>;
  close(): Promise<unknown>;
  /** postgres.js throws outside its caller when it rolls back on a lost connection: nobody could catch that. */
  losing?: 'throws past its caller';
}

interface Bench<Tx> {
  readonly library: Library<Tx>;
  readonly engine: Connection;
  /** Runs one task with this handler until the test ends. */
  work<Input>(handler: HandlerFunction<Input, unknown>): Task<Input>;
  bookings(id: string): Promise<number>;
}

/** Values that drivers, their settings and JSON are known to spell differently. */
const AWKWARD = {
  snake_key: { inner_key: [null, 'null', '', 'NULL'] },
  text: `a"b\\c{d},'e'\n$1 ü 🎈`,
  large: 12_345_678_901,
  fraction: 0.1,
};
/** More milliseconds than 32 bits hold. */
const LONG_DELAY_DAYS = 40;
const DAY_MS = 86_400_000;

export function describeLibrary<Tx>(name: string, open: (url: string) => Promise<Library<Tx>>): void {
  describe(name, () => {
    const bench = useBench(open);
    describeSubmit(bench);
    describeFailure(bench);
    describeSteps(bench);
    describeLoss(bench);
    describeEndedInside(bench);
  });
}

function useBench<Tx>(open: (url: string) => Promise<Library<Tx>>): Bench<Tx> {
  let database: TestDatabase;
  let engine: Connection;
  let library: Library<Tx>;
  const workers: Worker[] = [];
  beforeAll(async () => {
    database = await plainDatabase();
    await database.query('CREATE TABLE public.booking (id text PRIMARY KEY)');
    engine = await connect({ databaseUrl: database.url, poolSize: 4 });
    library = await open(database.url);
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop({ deadline: 0 })));
  });
  afterAll(async () => {
    await library?.close();
    await engine?.close();
    await database?.drop();
  });
  return {
    get library() {
      return library;
    },
    get engine() {
      return engine;
    },
    work<Input>(handler: HandlerFunction<Input, unknown>) {
      const made = task(newKind(), { retry: AGAIN.retry }) as Task<Input>;
      workers.push(startWorker(engine, { log: 'silent', handlers: [handle(made, handler)] }));
      return made;
    },
    async bookings(id) {
      const { rows } = await database.query('SELECT FROM public.booking WHERE id = $1', [id]);
      return rows.length;
    },
  };
}

function newId(partition: number): string {
  return `{fp:${partition}}:${uuidV7(1_700_000_000_000, crypto.getRandomValues(new Uint8Array(10)))}`;
}

function describeSubmit<Tx>(bench: Bench<Tx>): void {
  test('an execution submitted in a transaction exists after the commit and runs', async () => {
    const echo = bench.work<typeof AWKWARD>((input) => input);
    const run = await bench.library.transaction(async (tx) => {
      await bench.library.write(tx, echo.name);
      const submitted = await bench.engine.submit(echo, AWKWARD, {
        executor: bench.library.executor(tx),
        tags: { [AWKWARD.text]: AWKWARD.text },
      });
      expect(await bench.engine.executions.describe(submitted.executionId)).toBeNull();
      return submitted;
    });
    expect(await run.result()).toEqual(AWKWARD);
    expect(await bench.engine.executions.describe(run.executionId)).toMatchObject({
      tags: { [AWKWARD.text]: AWKWARD.text },
    });
    expect(await bench.bookings(echo.name)).toBe(1);
  });

  test('an execution submitted in a transaction does not exist after a rollback', async () => {
    const ran: unknown[] = [];
    const note = bench.work<null>((input) => ran.push(input));
    const executionId = newId(3);
    const undone = bench.library.transaction(async (tx) => {
      await bench.library.write(tx, note.name);
      await bench.engine.submit(note, null, { executor: bench.library.executor(tx), executionId });
      throw new Error('changed my mind');
    });
    await expect(undone).rejects.toThrow('changed my mind');
    expect(await bench.engine.executions.describe(executionId)).toBeNull();
    expect(await bench.bookings(note.name)).toBe(0);
    expect(ran).toEqual([]);
  });

  test('one transaction submits many executions, some long delayed, some known already', async () => {
    const later = task<number>(newKind(), { capabilities: ['a', 'b'], lane: 'later' });
    const executionId = newId(4);
    await bench.engine.submit(later, 0, { executionId });
    const runs = await bench.library.transaction((tx) =>
      bench.engine.submitMany(
        later,
        [
          { input: 1 },
          { input: 2, delay: { days: LONG_DELAY_DAYS }, priority: 7 },
          { input: 3, executionId },
        ],
        { executor: bench.library.executor(tx) },
      ),
    );
    expect(runs.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted', 'duplicate']);
    const [ready, delayed] = await Promise.all(
      runs.map((run) => bench.engine.executions.describe(run.executionId)),
    );
    expect(ready).toMatchObject({ state: 'waiting', capabilities: ['a', 'b'], lane: 'later' });
    expect(delayed).toMatchObject({ state: 'delayed', priority: 7 });
    expect(delayed!.eligibleAtMs! - delayed!.createdAtMs).toBe(LONG_DELAY_DAYS * DAY_MS);
  });
}

function describeFailure<Tx>(bench: Bench<Tx>): void {
  /** An execution's uuid under the wrong partition: only the database can tell. */
  async function misplacedId(): Promise<string> {
    const executionId = newId(1);
    await bench.engine.executions.submit({ kind: newKind(), executionId });
    return executionId.replace('{fp:1}', '{fp:2}');
  }

  test('a submit refused by the database fails the transaction with the engine’s error', async () => {
    const executionId = await misplacedId();
    const kind = newKind();
    const refused = bench.library.transaction(async (tx) => {
      await bench.library.write(tx, kind);
      await bench.engine.executions.submit({ kind, executionId }, { executor: bench.library.executor(tx) });
    });
    await expect(refused).rejects.toMatchObject({
      name: 'EngineError',
      code: 'invalid_id',
      sqlState: 'FF004',
    });
    expect(await bench.bookings(kind)).toBe(0);
  });

  test('continuing after a refused submit reports that the transaction must be rolled back', async () => {
    const executionId = await misplacedId();
    const kind = newKind();
    const stubborn = bench.library.transaction(async (tx) => {
      const executor = bench.library.executor(tx);
      await bench.engine.executions.submit({ kind, executionId }, { executor }).catch(() => undefined);
      await bench.engine.executions.submit({ kind }, { executor });
    });
    const seen = await stubborn.catch((error: unknown) => error);
    expect(seen).toMatchObject({ name: 'EngineError', code: 'retry_transaction', sqlState: '25P02' });
  });
}

function describeSteps<Tx>(bench: Bench<Tx>): void {
  test('a write and its step commit together, and a repeated run repeats neither', async () => {
    const seen: unknown[] = [];
    const book = bench.work<null>(async (_, ctx) => {
      const value = await ctx.tx(
        'book',
        async (tx) => {
          await bench.library.write(tx, ctx.executionId);
          return AWKWARD;
        },
        { through: bench.library.transactor },
      );
      seen.push(value);
      if (ctx.attemptIndex === 0) throw new Error('after the commit');
      return value;
    });
    const run = await bench.engine.submit(book, null);
    expect(await run.result()).toEqual(AWKWARD);
    expect(seen).toEqual([AWKWARD, AWKWARD]);
    expect(await bench.bookings(run.executionId)).toBe(1);
    expect(await bench.engine.executions.listSteps(run.executionId)).toMatchObject([
      { name: 'book', value: AWKWARD },
    ]);
  });

  test('a transaction that throws stores neither its write nor its step', async () => {
    const before: number[] = [];
    const book = bench.work<null>(async (_, ctx) => {
      before.push(await bench.bookings(ctx.executionId));
      await ctx.tx(
        'book',
        'once',
        async (tx) => {
          await bench.library.write(tx, ctx.executionId);
          if (ctx.attemptIndex === 0) throw new Error('before the commit');
        },
        { through: bench.library.transactor },
      );
    });
    const run = await bench.engine.submit(book, null);
    await run.result();
    expect(before).toEqual([0, 0]);
    expect(await bench.bookings(run.executionId)).toBe(1);
  });

  test('a worker that loses its lease inside the transaction writes nothing', async () => {
    const before: number[] = [];
    const book = bench.work<null>(async (_, ctx) => {
      before.push(await bench.bookings(ctx.executionId));
      await ctx.tx(
        'book',
        async (tx) => {
          await bench.library.write(tx, ctx.executionId);
          if (before.length === 1)
            await bench.engine.executions.revokeLease(ctx.executionId, { reason: 'test' });
        },
        { through: bench.library.transactor },
      );
    });
    const run = await bench.engine.submit(book, null);
    await run.result();
    expect(before).toEqual([0, 0]);
    await expect.poll(() => bench.bookings(run.executionId), SOON).toBe(1);
  });
}

function describeLoss<Tx>(bench: Bench<Tx>): void {
  test('a connection lost inside the transaction costs no attempt: the work runs again', async (context) => {
    context.skip(bench.library.losing !== undefined, bench.library.losing);
    let calls = 0;
    const book = bench.work<null>((_, ctx) =>
      ctx.tx(
        'book',
        async (tx) => {
          calls += 1;
          await bench.library.write(tx, ctx.executionId);
          if (calls === 1) await bench.library.send(tx, 'SELECT pg_terminate_backend(pg_backend_pid())');
          return `in call ${calls} of attempt ${ctx.attemptIndex}`;
        },
        { through: bench.library.transactor },
      ),
    );
    const run = await bench.engine.submit(book, null);
    expect(await run.result()).toBe('in call 2 of attempt 0');
    expect(await bench.bookings(run.executionId)).toBe(1);
  });
}

/** What the work, or a library it uses, may send although it must not end the transaction. */
const ENDINGS = ['ROLLBACK', 'COMMIT', 'ROLLBACK AND CHAIN', 'COMMIT AND CHAIN'];

function describeEndedInside<Tx>(bench: Bench<Tx>): void {
  test.each(ENDINGS)(
    'a step whose transaction was ended by its own code with %s is not stored',
    async (statement) => {
      const calls: string[] = [];
      const book = bench.work<null>(async (_, ctx) => {
        calls.push(ctx.executionId);
        await ctx.tx(
          'book',
          async (tx) => {
            await bench.library.write(tx, ctx.executionId);
            await bench.library.send(tx, statement);
            return 'booked';
          },
          { through: bench.library.transactor },
        );
      });
      const run = await bench.engine.submit(book, null);
      expect(await run.wait()).toMatchObject({
        outcome: 'failed',
        message: expect.stringContaining('leave COMMIT and ROLLBACK to the code that began it'),
      });
      expect(calls).toHaveLength(1);
      expect(await bench.engine.executions.listSteps(run.executionId)).toEqual([]);
    },
  );

  test.each(['ROLLBACK', 'COMMIT'])(
    'a submit after %s is refused: nothing would undo it',
    async (statement) => {
      const kind = newKind();
      const executionId = newId(5);
      const submitted = bench.library.transaction(async (tx) => {
        await bench.library.write(tx, kind);
        await bench.library.send(tx, statement);
        await bench.engine.executions.submit({ kind, executionId }, { executor: bench.library.executor(tx) });
      });
      await expect(submitted).rejects.toMatchObject({ code: 'invalid_input', field: 'options.executor' });
      expect(await bench.engine.executions.describe(executionId)).toBeNull();
    },
  );
}
