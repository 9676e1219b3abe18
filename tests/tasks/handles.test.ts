/**
 * What a connection offers and what it does not: tasks and flows by their definitions at the top, everything untyped in its groups, and
 * the worker protocol only where it is asked for.
 */
import { expect, test } from 'vitest';
import { flow, stream, task } from '../../src/define/index.ts';
import { isEngineError, type Connection } from '../../src/index.ts';
import { workerPort } from '../../src/protocol/index.ts';
import { newKind, useCrew } from '../worker/crew.ts';

const crew = useCrew();

/** The field at fault, of a call that is refused at once or later. */
async function fieldOf(call: () => unknown): Promise<string | undefined> {
  try {
    await call();
  } catch (error) {
    if (isEngineError(error) && error.code === 'invalid_input') return error.field;
    throw error;
  }
  return 'nothing was refused';
}

test('a flow is found by its id, here and by another connection', async () => {
  const [here, there] = [await crew.connect(), await crew.connect()];
  const step = task<null>(newKind());
  const run = await here.submitFlow(flow(newKind(), (f) => f.add('only', step, null)));
  const handle = there.flow(run.flowId);
  expect(handle.flowId).toBe(run.flowId);
  expect(await handle.describe()).toMatchObject({ flowId: run.flowId, state: 'running' });
  expect(await handle.cancel({ reason: 'enough', wait: 'end' })).toMatchObject({ outcome: 'cancelled' });
  expect(await Promise.all([handle.wait(), run.wait()])).toEqual(['cancelled', 'cancelled']);
});

test('the id of a flow is looked at when a handle is asked for, the flow when it is used', async () => {
  const engine = await crew.connect();
  expect(() => engine.flow('nonsense')).toThrow(expect.objectContaining({ code: 'invalid_id' }));
  const nobody = engine.flow('{fp:1}:00000000-0000-4000-8000-000000000000');
  expect(await nobody.describe()).toBeNull();
  await expect(nobody.wait()).rejects.toMatchObject({ code: 'not_found' });
});

test('handles refuse what cannot be read, as their groups do', async () => {
  const engine = await crew.connect();
  const id = '{fp:1}:00000000-0000-4000-8000-000000000000';
  const kind = task(newKind(), {
    streams: { tokens: stream.durable<string>(), state: stream.summary<{ a: number }>() },
  });
  const [run, whole] = [engine.execution(kind, id), engine.flow(id)];
  const unreadable = (name: string): never =>
    Object.defineProperty({}, name, {
      enumerable: true,
      get() {
        throw new TypeError('a getter threw');
      },
    }) as never;
  for (const call of [
    () => whole.cancel(unreadable('reason')),
    () => whole.wait(unreadable('signal')),
    () => run.wait(unreadable('signal')),
    () => run.result(unreadable('signal')),
    () => run.streams.tokens.tail(unreadable('after')),
    () => run.streams.state.watch(unreadable('signal')),
  ])
    expect(await fieldOf(call)).toBe('arguments');
});

test('the reason of an aborted signal passes through a handle', async () => {
  const engine = await crew.connect();
  const run = await engine.submit(task<null>(newKind()), null);
  const stop = new AbortController();
  const gone = new Error('the caller went away');
  const waits = [run.wait({ signal: stop.signal }), run.result({ signal: stop.signal })];
  stop.abort(gone);
  for (const wait of waits) await expect(wait).rejects.toBe(gone);
});

test('tasks and flows are submitted at the top, requests in their groups', async () => {
  const engine = await crew.connect();
  const submit = engine.submit as unknown as (request: object) => Promise<unknown>;
  const submitFlow = engine.submitFlow as unknown as (request: object) => Promise<unknown>;
  expect(await fieldOf(() => submit({ kind: newKind() }))).toBe('task');
  expect(await fieldOf(() => submitFlow({ name: 'f', members: [] }))).toBe('flow');
  const { executionId } = await engine.executions.submit({ kind: newKind() });
  expect(await engine.cancel(executionId, { reason: 'enough' })).toMatchObject({ outcome: 'cancelled' });
});

test('the worker protocol is not offered by a connection, and a port is had of nothing else', async () => {
  const engine = await crew.connect();
  const port = workerPort(engine);
  for (const verb of Object.keys(port).filter((name) => name !== 'wait' && name !== 'result'))
    expect(engine).not.toHaveProperty(verb);
  expect(workerPort(engine)).toBe(port);
  for (const other of [{ ...engine }, {}, null, 'engine'])
    expect(await fieldOf(() => workerPort(other as Connection))).toBe('connection');
});
