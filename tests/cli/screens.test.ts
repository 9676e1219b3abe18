/**
 * What each command shows on a terminal of 80 and of 120 columns, compared with the files in golden/. Ids are given, and
 * the clock stands still, so that a screen is the same every time; run vitest with -u to write the files anew, and read
 * the difference. No line may be longer than the terminal is wide.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { topLines } from '../../src/cli/drawing/top.ts';
import { paint } from '../../src/cli/style.ts';
import { widthOf } from '../../src/cli/text-width.ts';
import {
  atLeast,
  connect,
  type Connection,
  type MemberRequest,
  type SubmittedFlow,
} from '../../src/index.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { Claim, WorkerPort } from '../../src/protocol/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { testDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand } from './processes.ts';

const START_MS = Date.UTC(2026, 4, 17, 8);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const WORKER = 'mailer-37f10771-6f0c-4f0e-9d39-6a54d5bbf5ce';
const env = { NO_COLOR: '1', FLOWFABRIC_SIGNING_SECRET: 'a-secret-of-the-tests-long-enough-to-be-one' };

/** Of one millisecond where the first number is the same. */
function idOf(time: number, nth: number): string {
  return `{fp:7}:0196dd2${time}-1c00-7${nth}00-8000-000000000000`;
}

const IDS = {
  failed: idOf(1, 1),
  active: idOf(2, 1),
  delayed: idOf(3, 1),
  waiting: idOf(4, 1),
  sibling: idOf(4, 2),
  suspended: idOf(5, 1),
  completed: idOf(6, 1),
  race: idOf(7, 1),
  nightly: idOf(8, 1),
};

let database: TestDatabase;
let engine: Connection;
let port: WorkerPort;
/** Ids that were not given. */
const minted: string[] = [];

beforeAll(async () => {
  database = await testDatabase();
  await database.query(
    'CREATE OR REPLACE FUNCTION ff_now_ms() RETURNS bigint LANGUAGE sql VOLATILE RETURN (SELECT offset_ms FROM ff_clock)',
  );
  await database.setClockOffset(START_MS);
  engine = await connect({
    databaseUrl: database.url,
    reconcile: 'off',
    signingSecret: env.FLOWFABRIC_SIGNING_SECRET,
  });
  port = workerPort(engine);
  await fill();
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

async function claim(kind: string, leaseMs = 2 * HOUR_MS): Promise<Claim> {
  const request = { workerId: 'mailer', workerInstanceId: WORKER, kinds: [kind], limit: 1, leaseMs };
  const claimed = await vi.waitUntil(async () => (await port.claim(request)).claims[0], PATIENCE);
  return claimed;
}

function register(workerInstanceId: string, more: object = {}): Promise<void> {
  return port.registerWorker({
    workerInstanceId,
    workerId: 'mailer',
    version: '2.4.1',
    kinds: ['import-customers', 'newsletter', 'send-mail'],
    concurrency: 10,
    running: 1,
    uptimeMs: 0,
    stopping: false,
    ...more,
  });
}

/** Submits, claims and fails, three times, each attempt a little longer. */
async function failThrice(): Promise<void> {
  await engine.executions.submit({
    kind: 'send-mail',
    lane: 'mail',
    executionId: IDS.failed,
    tags: { customer: '42' },
    payload: {
      to: 'ada@example.org',
      template: 'welcome',
      variables: { name: 'Ada', plan: 'team', seats: 12 },
    },
    policy: { retry: { maxRetries: 2 } },
  });
  for (const lastedMs of [75, 26, 1_022]) {
    const lease = await claim('send-mail');
    await port.recordStep(lease, { name: 'render', value: { subject: 'Welcome, Ada' }, durationMs: 12 });
    const receipt = { id: 7, trail: ['checked', 'unsubscribed: no', 'bounced: never', 'reputation: good'] };
    await port.recordStep(lease, { name: 'check address', key: 'ada', value: receipt, durationMs: 4 });
    await database.moveClock(lastedMs);
    await port.fail(lease, {
      message: 'connect ECONNREFUSED 10.0.0.7:25 while sending to ada@example.org',
      detail: {
        name: 'MailError',
        stack: [
          'at sendMail (/srv/mailer/dist/tasks/send-mail.js:41:11)',
          'at async Object.run (file:///srv/mailer/dist/tasks/a-folder-with-a-long-name/send-mail-with-attachments.js:12:3)',
          'at process.processTicksAndRejections (node:internal/process/task_queues:105:5)',
          'at TCPConnectWrap.afterConnect (node:net:1637:16)',
        ].join('\n'),
        causes: [{ name: 'Error', message: 'connect ECONNREFUSED 10.0.0.7:25', at: 'dist/smtp.js:9:5' }],
      },
    });
    await database.moveClock(MINUTE_MS);
    await port.fireTimers();
  }
}

async function submitFlow(): Promise<void> {
  await engine.flows.create({ name: 'race', flowId: IDS.race });
  const after = ['claude', 'gpt', 'llama'].map((from) => ({ from, as: 'answers', list: true }));
  const members = [
    { name: 'claude', kind: 'ask-claude' },
    { name: 'gpt', kind: 'ask-gpt' },
    { name: 'llama', kind: 'ask-llama' },
    { name: 'judge', kind: 'publish', after, join: { kind: 'quorum', k: 2 } as const },
  ];
  const add = (member: MemberRequest) => engine.flows.addMembers(IDS.race, [member]);
  for (const member of members) await mint(add.bind(null, member));
  await engine.flows.seal(IDS.race);
  await port.complete(await claim('ask-gpt'), { answer: 42 });
  await port.fail(await claim('ask-llama'), { message: 'out of memory', retry: 'never' });
  const nightly = [{ name: 'export', kind: 'export' }];
  await mint(() => engine.flows.submit({ name: 'nightly', flowId: IDS.nightly, members: nightly }));
}

/** Submits one member, in a millisecond of its own, so that its short id has 13 characters. */
async function mint(submit: () => Promise<SubmittedFlow>): Promise<void> {
  const beforeMs = Date.now();
  await vi.waitUntil(() => Date.now() > beforeMs, { ...PATIENCE, interval: 1 });
  const { members } = await submit();
  minted.push(Object.values(members)[0]!);
}

async function fill(): Promise<void> {
  await failThrice();
  await engine.executions.submit({ kind: 'newsletter', lane: 'bulk', executionId: IDS.completed });
  await port.complete(await claim('newsletter'), { sent: 3 });
  await engine.executions.submit({ kind: 'approve-order', executionId: IDS.suspended });
  const lease = await claim('approve-order');
  const condition = { ...atLeast(2).distinctSources().at('manager') };
  await port.suspend(lease, {
    waits: [{ name: 'manager', condition, timeoutMs: 86_400_000, reason: 'approval' }],
  });
  await engine.waitpoints.approve(IDS.suspended, 'manager', { by: 'ada' });
  await submitFlow();
  await database.moveClock(HOUR_MS);
  await register(WORKER);
  await register('mailer-0abf4569-0c8e-4ad4-8c60-4a1a1fd5f7fe', { running: 0 });
  await database.moveClock(MINUTE_MS);
  await register('importer-1', { workerId: 'importer', kinds: ['import-customers'], lanes: ['bulk'] });
  await engine.executions.submit({ kind: 'import-customers', lane: 'bulk', executionId: IDS.active });
  await claim('import-customers');
  await engine.executions.submit({ kind: 'remind', executionId: IDS.delayed, delay: 36 * HOUR_MS });
  await engine.executions.submit({ kind: 'send-mail', lane: 'mail', executionId: IDS.waiting });
  await engine.executions.submit({ kind: 'send-mail', lane: 'mail', executionId: IDS.sibling });
  await engine.lanes.pause('mail', { by: 'ada', reason: 'the mail server is down until noon' });
  await engine.signingKeys.rotate();
  await database.query(
    `INSERT INTO ff_consumer VALUES ('billing', 2, ff_now_ms() - 5000, ff_now_ms() + 60000, 'billing-1', 0, NULL),
       ('webhooks', 1, ff_now_ms() - 250000, ff_now_ms() + 60000, 'f6b5a1f0-6b0e-4a5e-8a54-0f0f6e1d2c3b', 5, 'ETIMEDOUT')`,
  );
  await database.moveClock(17_000);
}

/** The same every time: minted ids and keys are replaced by others of their length. */
async function stable(text: string): Promise<string> {
  const short = await engine.executions.shorten(minted);
  let result = text;
  short.forEach((prefix, index) => {
    expect(prefix).toHaveLength(13);
    result = result.replaceAll(prefix, `0196dd29-1c0${index}`);
  });
  for (const { kid } of await engine.signingKeys.list()) result = result.replaceAll(kid, '5a5a5a5a');
  return result;
}

const SCREENS: Readonly<Record<string, readonly string[]>> = {
  help: ['--help'],
  list: ['list'],
  'list-failed': ['list', '--state', 'failed'],
  'list-none': ['list', '--kind', 'nothing'],
  'cancel-dry-run': ['cancel', '--lane', 'mail', '--dry-run'],
  'describe-failed': ['describe', IDS.failed],
  steps: ['steps', IDS.failed],
  'steps-none': ['steps', IDS.waiting],
  'describe-attempts': ['describe', IDS.completed, '--attempts'],
  'describe-suspended': ['describe', '0196dd25'],
  'describe-ambiguous': ['describe', '0196dd24'],
  'describe-flow': ['describe', IDS.race],
  'explain-held': ['explain', IDS.waiting],
  'explain-all': ['explain', IDS.waiting, '--all'],
  'explain-silent-owner': ['explain', IDS.active],
  'explain-failed': ['explain', IDS.failed],
  flows: ['flows', 'list'],
  'flows-describe': ['flows', 'describe', IDS.race],
  waitpoints: ['waitpoints', 'list'],
  lanes: ['lanes', 'list'],
  workers: ['workers', 'list'],
  consumers: ['consumers', 'list'],
  'signing-keys': ['signing-keys', 'list'],
  events: [
    'events',
    'tail',
    '--from',
    'beginning',
    '--no-follow',
    '--family',
    'completion',
    '--family',
    'lease',
  ],
};

describe.each([80, 120])('on a terminal of %i columns', (columns) => {
  it.each(Object.entries(SCREENS))('%s fits and is as it was', async (name, args) => {
    const { output, errors } = await runCommand({ args: [...args], databaseUrl: database.url, env, columns });
    // A cursor and what it continues with are longer than any terminal.
    const noted = errors.replace(/^continue with\n.*\n/m, '');
    const text = await stable(noted === '' ? output : `${output}--- stderr\n${noted}`);
    await expect(text).toMatchFileSnapshot(`golden/${columns}/${name}.txt`);
    expect(tooLong(output, columns)).toEqual([]);
  });

  it('top fits and is as it was', async () => {
    const snapshot = {
      atMs: await engine.upkeep.serverTimeMs(),
      lanes: (await engine.lanes.list()).lanes,
      workers: await engine.workers.list(),
    };
    const style = { colour: 'off', characters: 'unicode' } as const;
    const lines = topLines(snapshot, { columns, rows: 24 }).map((line) => `${paint(line, style)}\n`);
    await expect(lines.join('')).toMatchFileSnapshot(`golden/${columns}/top.txt`);
    expect(tooLong(lines.join(''), columns)).toEqual([]);
  });

  it('doctor fits', async () => {
    const { output } = await runCommand({ args: ['doctor'], databaseUrl: database.url, env, columns });
    expect(output).toContain('server version');
    expect(tooLong(output, columns)).toEqual([]);
  });
});

function tooLong(text: string, columns: number): string[] {
  return text.split('\n').filter((line) => widthOf(line) > columns);
}
