/**
 * A process that is stopped between the record of a step and its COMMIT neither dies nor continues: its work is taken
 * away all the same, and a caller that cancels meanwhile gets a result.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { task } from '../../../src/define/task.ts';
import { handle } from '../../../src/define/handlers.ts';
import { AGAIN, newKind, useCrew } from '../../worker/crew.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/stopped-process.mjs', import.meta.url));
const LEASE_MS = 4_000;
const crew = useCrew();

/** Waits until it has stopped in its transaction. The process is killed when the test ends. */
async function stopInTransaction(kind: string): Promise<void> {
  const options = JSON.stringify({ url: crew.database.url, kind, leaseMs: LEASE_MS });
  const child = spawn(process.execPath, [FIXTURE, options], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  await once(createInterface({ input: child.stdout }), 'line');
}

test('the lease of a process stopped before its COMMIT expires, and another process runs the execution', async () => {
  await crew.database.query('CREATE TABLE public.paid (by text)');
  const engine = await crew.connect();
  const pay = task<null>(newKind());
  const run = await engine.submit(pay, null, { policy: AGAIN });
  await stopInTransaction(pay.name);
  await crew.database.moveClock(LEASE_MS);
  await crew.connect({ reconcile: 'on' });
  const work = handle(pay, (_, ctx) =>
    ctx.tx('pay', async (tx) => {
      await tx.query('INSERT INTO public.paid VALUES ($1)', ['another']);
      return 'another';
    }),
  );
  crew.work(engine, { poll: 20, handlers: [work] });
  expect(await run.result()).toBe('another');
  expect((await crew.database.query('SELECT by FROM public.paid')).rows).toEqual([{ by: 'another' }]);
});

test('cancelling it first reports who holds it, and then succeeds', async () => {
  const engine = await crew.connect();
  const pay = task<null>(newKind());
  await crew.database.query('CREATE TABLE IF NOT EXISTS public.paid (by text)');
  const { executionId } = await engine.submit(pay, null);
  await stopInTransaction(pay.name);
  const cancel = () =>
    engine.cancel(executionId, { reason: 'stuck' }).then(
      ({ outcome }) => outcome,
      (error: { code?: string; message: string }) => `${error.code}: ${error.message}`,
    );
  const answers = [await cancel()];
  while (!answers.includes('cancelled')) answers.push(await cancel());
  // The server may have ended the session just before the lookup.
  for (const told of answers.slice(0, -1))
    expect(told).toMatch(
      /^contention: .* (session \d+, open for \d+s, idle after it recorded a step|has released it)/,
    );
  expect(await engine.executions.listSteps(executionId)).toEqual([]);
});
