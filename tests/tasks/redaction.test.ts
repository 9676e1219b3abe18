/**
 * Redaction: values planted wherever an execution may have them, and every way to read it. What is hidden appears in no
 * read, no event, no log, no span and no notification; the handler, its children and code that has the contract get it.
 * The same task without a redaction shows that each of these would find it.
 */
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { trace } from '@opentelemetry/api';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { flow, task } from '../../src/define/index.ts';
import { DESCRIBE_PARTS } from '../../src/contract/described.ts';
import { handle } from '../../src/define/handlers.ts';
import { ExecutionFailed, type Redaction } from '../../src/index.ts';
import { workerPort, type Claim } from '../../src/protocol/index.ts';
import { runCommand } from '../cli/processes.ts';
import { newKind, SOON, useCrew } from '../worker/crew.ts';
import {
  all,
  CARRYING,
  listen,
  play as playWith,
  SECRET,
  secret,
  textOf,
  type Card,
  type Run,
  type Stage,
} from './redacted-stage.ts';

const crew = useCrew();
const play = (redact: Redaction | undefined): Promise<Stage> => playWith(crew, redact);
const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
beforeAll(() => void trace.setGlobalTracerProvider(provider));
afterAll(async () => {
  await provider.shutdown();
  trace.disable();
});

const SECRET_IN_HEX = Buffer.from(SECRET).toString('hex');
const SECRET_IN_BASE64 = Buffer.from(`${SECRET}-binary`).toString('base64');

type Reads = Record<string, () => Promise<unknown>>;

/** Every read of an execution that a connection has. */
function readsOf({ engine }: Stage, { id, kind }: Run): Reads {
  const { executions, streams } = engine;
  const include = DESCRIBE_PARTS;
  const events = async () =>
    all(await engine.events.subscribe({ from: 'beginning', until: 'now', filter: { kind } }));
  return {
    describe: () => executions.describe(id, { include }),
    result: () => executions.result(id),
    wait: () => executions.wait(id),
    list: () => executions.list({ filter: { kind } }),
    find: () => executions.find(id),
    listAttempts: () => executions.listAttempts(id),
    listSteps: () => executions.listSteps(id),
    explain: () => executions.explain(id),
    'streams.read': () => streams.read(id),
    'streams.tail': () => all(streams.tail(id)),
    'streams.tailOnce': () => streams.tailOnce(id, { attemptIndex: 0 }),
    'streams.readSummary': () => streams.readSummary(id),
    'streams.watchSummary': () => all(streams.watchSummary(id)),
    'streams.watch': () => all(streams.watch(id)),
    'events.subscribe': events,
    'waitpoints.list': () => engine.waitpoints.list({ executionId: id }),
  };
}

const COMMANDS: readonly (readonly string[])[] = [
  ['describe', 'ID'],
  ['describe', 'ID', '--json'],
  ['describe', 'ID', '--attempts'],
  ['describe', 'ID', '--attempts', '--json'],
  ['steps', 'ID'],
  ['steps', 'ID', '--json'],
  ['explain', 'ID', '--all'],
  ['explain', 'ID', '--json'],
  ['list', '--kind', 'KIND'],
  ['list', '--kind', 'KIND', '--json'],
  ['streams', 'read', 'ID'],
  ['streams', 'read', 'ID', '--json'],
  ['streams', 'tail', 'ID'],
  ['streams', 'tail', 'ID', '--json'],
  ['events', 'tail', '--from', 'beginning', '--no-follow', '--kind', 'KIND'],
  ['events', 'tail', '--from', 'beginning', '--no-follow', '--kind', 'KIND', '--json'],
];

function commandsOf({ id, kind }: Run): Reads {
  const named: Record<string, string> = { ID: id, KIND: kind };
  const entries = COMMANDS.map((words) => {
    const args = [...words.map((word) => named[word] ?? word), '--schema', crew.database.schema];
    const read = async (): Promise<unknown> => {
      const ended = await runCommand({ args, databaseUrl: crew.database.url });
      expect(ended.output).not.toBe('');
      return ended;
    };
    return [words.join(' '), read] as const;
  });
  return Object.fromEntries(entries);
}

/** Every view of the schema, whole. */
async function viewsOf({ id }: Run): Promise<Reads> {
  const { rows } = await crew.database.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'execution_id'
     WHERE c.relkind = 'v' AND c.relnamespace = to_regnamespace(current_schema())`,
  );
  expect(rows.length).toBeGreaterThan(5);
  return Object.fromEntries(
    rows.map(({ name }) => [
      name,
      () =>
        crew.database.query(`SELECT to_jsonb(v)::text FROM "${name}" v WHERE execution_id::text = $1`, [
          id.slice(id.indexOf(':', 4) + 1),
        ]),
    ]),
  );
}

/** The names of the reads that show something planted. */
async function showing(reads: Reads): Promise<string[]> {
  const found: string[] = [];
  for (const [name, read] of Object.entries(reads)) {
    const text = textOf(await read());
    if ([SECRET, SECRET_IN_HEX, SECRET_IN_BASE64].some((each) => text.includes(each))) found.push(name);
  }
  return found;
}

describe.each<[string, Redaction]>([
  ['everything', true],
  ['what pointers name', ['/card/number', '/*/number', '/nowhere']],
])('a task that redacts %s', (_, redact) => {
  it('is shown without it by every read, command, view, event, log, span and notification', async () => {
    exporter.reset();
    const stage = await play(redact);
    for (const run of [stage.done, stage.failed]) {
      expect(await showing(readsOf(stage, run))).toEqual([]);
      expect(await showing(commandsOf(run))).toEqual([]);
      expect(await showing(await viewsOf(run))).toEqual([]);
    }
    expect(stage.logged.join('\n')).toContain('"err":{"name":"TypeError","message":"[redacted]"}');
    expect(stage.logged.filter((line) => line.includes(SECRET))).toEqual([]);
    expect(stage.notified.length).toBeGreaterThan(0);
    expect(stage.notified.filter((text) => text.includes(SECRET))).toEqual([]);
    const spans = exporter.getFinishedSpans().map(({ name, attributes, events, status }) => {
      return { name, attributes, events, status };
    });
    expect(spans.length).toBeGreaterThan(0);
    expect(textOf(spans)).not.toContain(SECRET);
  });

  it('cannot be searched for it', async () => {
    const { engine, failed } = await play(redact);
    const search = (contains: string) =>
      engine.executions.list({ filter: { states: ['failed'], kind: failed.kind, failure: { contains } } });
    expect((await search(SECRET)).executions).toEqual([]);
    expect((await search('[redacted]')).executions).toHaveLength(1);
  });

  it('gets it in its handler and its children, and gives it to whoever has its contract', async () => {
    const { got, engine, done } = await play(redact);
    expect(got).toMatchObject({
      input: secret('input'),
      step: secret('step'),
      signal: secret('signal'),
      message: secret('message'),
      topic: secret('topic'),
      'child input': secret('child-input'),
      'child result': secret('child-result'),
      result: secret('result'),
    });
    for (const where of ['document', 'word', 'frame']) expect(got['streams']).toContain(`${SECRET}-${where}`);
    expect(got['failure']).toBeInstanceOf(ExecutionFailed);
    expect(textOf(got['failure'])).not.toContain(SECRET);
    const revealed = await showing({
      describe: () => engine.executions.describe(done.id, { include: ['input'], reveal: true }),
      steps: () => engine.executions.listSteps(done.id, { reveal: true }),
      result: () => engine.executions.result(done.id, { reveal: true }),
      wait: () => engine.executions.wait(done.id, { reveal: true }),
      frames: () => engine.streams.read(done.id, { reveal: true }),
      tail: () => all(engine.streams.tail(done.id, { reveal: true })),
      document: () => engine.streams.readSummary(done.id, { reveal: true }),
    });
    expect(revealed).toHaveLength(7);
  });
});

it('a task that redacts nothing shows all of it: the search above would find it', async () => {
  exporter.reset();
  const stage = await play(undefined);
  onTestFinished(() => exporter.reset());
  const of = async (run: Run): Promise<string[]> => [
    ...(await showing(readsOf(stage, run))),
    ...(await showing(commandsOf(run))),
    ...(await showing(await viewsOf(run))),
  ];
  const either = new Set([...(await of(stage.done)), ...(await of(stage.failed))]);
  const every = [
    ...Object.keys(readsOf(stage, stage.done)),
    ...Object.keys(commandsOf(stage.done)),
    ...Object.keys(await viewsOf(stage.done)),
  ];
  const never = every.filter((name) => !either.has(name));
  expect(never).toEqual(
    ['waitpoints.list', 'ff_lease', 'ff_lease_event'].filter((name) => every.includes(name)),
  );
  expect(stage.logged.some((line) => line.includes(`${SECRET}-cause`))).toBe(true);
  expect(textOf(exporter.getFinishedSpans().map(({ events }) => events))).toContain(SECRET);
});

it('pointers leave the rest to be seen', async () => {
  const { engine, done } = await play(['/card/number']);
  const shown = { card: { number: '[redacted]', kind: 'visa' } };
  const described = await engine.executions.describe(done.id, { include: ['input', 'steps'] });
  expect(described).toMatchObject({
    input: { ...shown, fails: false },
    progress: { percent: 10, message: '[redacted]' },
  });
  const steps = Object.fromEntries(described!.steps.items.map((step) => [step.name, step]));
  expect(steps['fetch']).toMatchObject({ value: shown });
  expect(steps['large']).toMatchObject({ value: '[redacted]', valueStart: '[redacted]' });
  expect(steps['approval']!.end!.signals).toMatchObject([{ payload: shown, source: { identity: 'ada' } }]);
  expect(await engine.executions.result(done.id)).toEqual({ outcome: 'success', result: shown });
  expect((await engine.streams.readSummary(done.id))?.document).toEqual(shown);
  const { frames } = await engine.streams.read(done.id);
  expect(frames.slice(0, 4).map(({ frameType, payload }) => [frameType, payload])).toMatchObject([
    ['words', '[redacted]'],
    ['cards', shown],
    ['raw', new Uint8Array()],
    ['state', shown],
  ]);
});

it('events say that a result is hidden, and nothing that the handler said', async () => {
  const { engine, done, failed } = await play(['/card/number']);
  const eventsOf = async (executionId: string) =>
    all(await engine.events.subscribe({ from: 'beginning', until: 'now', filter: { executionId } }));
  expect((await eventsOf(done.id)).at(-1)).toMatchObject({ type: 'success', end: { omitted: 'redacted' } });
  const events = await eventsOf(failed.id);
  expect(events.at(-1)).toMatchObject({ type: 'failed', end: { message: '[redacted]' } });
  expect(events).toContainEqual(
    expect.objectContaining({ type: 'progress_reported', percent: 10, message: null }),
  );
});

it('a handle by a key alone shows the hidden form, one with the contract the value', async () => {
  const engine = await crew.connect({ listen: 'on' });
  const keyed = task<Card, Card>(newKind(), { redact: ['/card/number'] });
  crew.work(engine, { handlers: [handle(keyed, (input) => input)] });
  const key = newKind();
  await engine.submit(keyed, secret('input'), { key });
  const [alone, typed] = [await engine.byKey(key), await engine.byKey(key, { task: keyed })];
  expect(await alone!.result()).toEqual({ card: { number: '[redacted]', kind: 'visa' } });
  expect(await typed!.result()).toEqual(secret('input'));
});

it('a failed member of a flow is described without what it said', async () => {
  const engine = await crew.connect({ listen: 'on' });
  const member = task<null, null>(newKind(), { redact: true });
  crew.work(engine, { handlers: [handle(member, () => Promise.reject(new Error(`${SECRET}-member`)))] });
  const run = await engine.submitFlow(flow(newKind(), (f) => f.add('only', member, null)));
  expect(await run.wait()).toBe('failed');
  const described = await run.describe();
  expect(described!.members).toMatchObject([{ name: 'only', state: 'failed', message: '[redacted]' }]);
});

it('what an operator or the engine says about an end is shown', async () => {
  const engine = await crew.connect();
  const kind = task(newKind(), { redact: true });
  const { executionId } = await engine.submit(kind, { secret: SECRET });
  await engine.cancel(executionId, { reason: 'enough', by: 'ada' });
  expect(await engine.executions.result(executionId)).toMatchObject({
    outcome: 'cancelled',
    message: 'enough',
  });
  expect(textOf(await engine.executions.explain(executionId))).toContain('enough');
});

it('frames of a task that redacts are never in a notification, where those of others are', async () => {
  const [engine, elsewhere] = [await crew.connect(CARRYING), await crew.connect(CARRYING)];
  const port = workerPort(engine);
  const notified = await listen(crew);
  const running = async (policy: object): Promise<Claim> => {
    const kind = newKind();
    await engine.executions.submit({ kind, policy });
    const request = { kinds: [kind], workerId: 'w', workerInstanceId: 'w', limit: 1, leaseMs: 60_000 };
    const claim = (await port.claim(request)).claims[0] ?? (await port.claim(request)).claims[0]!;
    const tail = elsewhere.streams.tail(claim.executionId)[Symbol.asyncIterator]();
    onTestFinished(async () => void (await tail.return?.()));
    void tail.next();
    return claim;
  };
  const [plain, redacted] = [await running({}), await running({ redact: ['/card/number'] })];
  const about = ({ executionId }: Claim) =>
    notified.filter((text) => text.includes(executionId.slice(executionId.indexOf(':', 4) + 1)));
  const append = async () => {
    for (const claim of [redacted, plain]) await port.appendFrames(claim, [{ payload: `${SECRET}-frame` }]);
  };
  await expect
    .poll(async () => {
      await append();
      return about(plain).some((text) => text.includes(SECRET));
    }, SOON)
    .toBe(true);
  await append();
  await expect.poll(() => about(redacted).length, SOON).toBeGreaterThan(0);
  expect(about(redacted).filter((text) => text.includes(SECRET))).toEqual([]);
});
