/**
 * `flowfabric publish`: what it publishes, and what it refuses.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect, type Connection } from '../../src/index.ts';
import { workerPort } from '../../src/protocol/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { testDatabase } from '../setup/database.ts';
import { runCommand } from './processes.ts';

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await testDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off', listen: 'off' });
});
afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

const run = (...args: string[]) => runCommand({ args, databaseUrl: database.url });

async function latest(topic: string, namespace: string): Promise<unknown> {
  const kind = `wait-${topic}`;
  await engine.executions.submit({ kind });
  const port = workerPort(engine);
  const request = { workerId: 'w', workerInstanceId: 'w', kinds: [kind], limit: 1, leaseMs: 30_000 };
  const [claim] = [...(await port.claim(request)).claims, ...(await port.claim(request)).claims];
  const outcome = await port.suspend(claim!, {
    waits: [{ name: 't', condition: { kind: 'topic', topic, namespace } }],
  });
  return outcome.outcome === 'already_satisfied' ? outcome.ended[0]!.end.topic?.data : outcome;
}

it('publishes JSON to a topic of a namespace', async () => {
  expect(await run('publish', 'packed:1', '{"parcel":7}', '--namespace', 'shop', '--keep', '1h')).toEqual({
    exitCode: 0,
    output: 'published to packed:1\n',
    errors: '',
  });
  expect(await latest('packed:1', 'shop')).toEqual({ parcel: 7 });
  const { output } = await run('publish', 'packed:2', '--json');
  expect(JSON.parse(output)).toEqual({ outcome: 'published', publishedAtMs: expect.any(Number) });
  expect(await latest('packed:2', 'default')).toBeNull();
});

it.each([
  ['without a topic', []],
  ['with something that is not JSON', ['t', 'packed']],
  ['with a bad duration', ['t', '1', '--keep', 'soon']],
  ['with a topic that is too long', ['x'.repeat(200), '1']],
] as const)('is a usage error %s', async (_, args) => {
  expect(await run('publish', ...args)).toMatchObject({ exitCode: 2, output: '' });
});
