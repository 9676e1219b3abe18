/**
 * `flowfabric flows`, and what `explain`, `describe` and `events tail` print about flows and their members, against a
 * real database.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Connection, type MemberRequest, type SubmittedFlow } from '../../src/index.ts';
import type { Claim } from '../../src/protocol/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, runProcess, startCommand } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

const UNKNOWN = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off', defaultPolicy: {} });
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

function run(...args: string[]) {
  return runCommand({ args, databaseUrl: database.url });
}

/** Every member is of the kind `flow.member`. */
async function submit(name: string, members: readonly Omit<MemberRequest, 'kind'>[]): Promise<SubmittedFlow> {
  return engine.flows.submit({
    name,
    namespace: name,
    members: members.map((member) => ({ kind: `${name}.${member.name}`, ...member })),
  });
}

async function claim(kind: string): Promise<Claim> {
  const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: 600_000 };
  let [claimed] = (await workerPort(engine).claim(request)).claims;
  await expect
    .poll(async () => (claimed ??= (await workerPort(engine).claim(request)).claims[0]), PATIENCE)
    .toBeDefined();
  return claimed!;
}

const RACE = [
  { name: 'gpt' },
  { name: 'claude' },
  { name: 'a"]; b' },
  {
    name: 'judge',
    after: ['gpt', 'claude', 'a"]; b'].map((from) => ({ from, as: 'answers', list: true })),
    join: { kind: 'quorum', k: 2 } as const,
  },
  { name: 'sorry', after: [{ from: 'judge', on: 'skipped' as const }] },
];

describe('flowfabric flows describe', () => {
  it('shows members with their joins, and edges; as text, JSON, Mermaid and DOT', async () => {
    const { flowId, members } = await submit('shown', RACE);
    await workerPort(engine).complete(await claim('shown.gpt'), 42);
    const [shown, json, mermaid, dot] = await Promise.all([
      run('flows', 'describe', flowId),
      run('flows', 'describe', flowId, '--json'),
      run('flows', 'describe', flowId, '--mermaid'),
      run('flows', 'describe', flowId, '--dot'),
    ]);
    const lines = shown.output.trimEnd().split('\n');
    expect(lines[0]).toBe(`${flowId}  shown  running`);
    expect(shown.output).toMatch(
      /^ {2}members +5: (?=.*2 waiting_children)(?=.*1 completed)(?=.*2 waiting)/m,
    );
    expect(shown.output).toMatch(/^ {2}edges +4, revision 1$/m);
    expect(shown.output).toMatch(/^MEMBER +STATE +JOIN +TASK +ATTEMPT +ID +DETAIL$/m);
    expect(shown.output).toContain(`1 of 2 (quorum of 3)  shown.judge`);
    expect(shown.output).toMatch(/^judge +waiting_children +1 of 2 \(quorum of 3\)/m);
    expect(shown.output).toMatch(/^gpt +judge +success +satisfied +answers$/m);
    expect(shown.output).toMatch(/^judge +sorry +skipped +pending$/m);
    expect(JSON.parse(json.output)).toMatchObject({ flowId, name: 'shown', nodeCount: 5 });
    expect(mermaid.output).toMatch(/^flowchart TD\n/);
    expect(mermaid.output).toContain('["a#34;#93;#59; b<br/>waiting"]');
    expect(dot.output).toMatch(/^digraph "shown" \{\n/);
    for (const { exitCode, errors } of [shown, json, mermaid, dot])
      expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    const waits = await run('explain', members['judge']!);
    expect(waits.output).toContain(
      'It is waiting for 2 of 3 upstream members; so far 1 satisfied, 2 pending: a"]; b (waiting), claude (waiting).',
    );
    expect(waits.output).toContain(`next: flowfabric flows describe '${flowId}'`);
    expect((await run('describe', members['judge']!)).output).toContain(
      'It is waiting for 2 of 3 upstream members',
    );
  });

  it('is refused for an unknown flow, and for two formats at once', async () => {
    const [unknown, two] = await Promise.all([
      run('flows', 'describe', UNKNOWN),
      run('flows', 'describe', UNKNOWN, '--mermaid', '--json'),
    ]);
    expect(unknown).toEqual({
      exitCode: 3,
      output: '',
      errors: `flowfabric: There is no flow ${UNKNOWN}. [not_found]\n`,
    });
    expect(two).toMatchObject({ exitCode: 2, output: '' });
    expect(two.errors).toContain('--json cannot be combined with --mermaid or --dot.');
  });
});

describe('members that do not run', () => {
  it('have a reason: losers, skipped ones, and those of a flow that is not sealed', async () => {
    const { flowId, members } = await submit('lost', [
      { name: 'x' },
      { name: 'y' },
      { name: 'best', after: ['x', 'y'], join: { kind: 'any' } },
      { name: 'never', after: [{ from: 'x', on: 'failure' }] },
    ]);
    await workerPort(engine).complete(await claim('lost.x'));
    await workerPort(engine).fireTimers();
    const [loser, skipped, gate] = await Promise.all([
      run('describe', members['y']!),
      run('describe', members['never']!),
      run('explain', members['never']!),
    ]);
    expect(loser.output).toMatch(
      /It was cancelled \d+m?s ago: the join it ran for was satisfied without it \(sibling_quorum_satisfied\);/,
    );
    expect(skipped.output).toMatch(/It was skipped \d+m?s ago: its join \(.*\) became impossible/);
    expect(gate.output).toMatch(
      /It was skipped \d+m?s ago: its join \(its upstream member\) became impossible: x was expected to fail but is completed;/,
    );
    expect(gate.output).toContain(`next: flowfabric flows describe '${flowId}'`);
    const open = await engine.flows.create({ name: 'unsealed' });
    const added = await engine.flows.addMembers(open.flowId, [{ name: 'a', kind: 'unsealed.a' }]);
    const [held, shown] = await Promise.all([
      run('explain', added.members['a']!),
      run('flows', 'describe', open.flowId),
    ]);
    expect(held.output).toContain('It is waiting for the flow unsealed to be sealed.');
    expect(shown.output).toMatch(/^ {2}sealed +not yet: no join is decided until then$/m);
  });
});

describe('flowfabric flows list', () => {
  it('lists the newest first, by namespace, name and state, page by page', async () => {
    const ids: string[] = [];
    for (const name of ['one', 'two', 'three'])
      ids.unshift(
        (await engine.flows.submit({ name, namespace: 'listed', members: [{ name: 'a', kind: 'listed' }] }))
          .flowId,
      );
    const page = await run('flows', 'list', '--namespace', 'listed', '--limit', '2');
    const rows = page.output.trimEnd().split('\n');
    expect(rows[0]).toMatch(/^ID +NAME +STATE +MEMBERS +EDGES +AGE( +DETAIL)?$/);
    expect(rows.slice(1).map((line) => line.split(' ')[0])).toEqual(ids.slice(0, 2));
    expect(page.errors).toMatch(
      /^there may be more; continue with\n {2}flowfabric flows list --namespace listed --limit 2 --cursor \S+\n$/,
    );
    const next = page.errors.trimEnd().split('\n')[1]!.trim().split(' ').slice(1);
    const [rest, named, none] = await Promise.all([
      run(...next, '--json'),
      run('flows', 'list', '--name', 'two', '--namespace', 'listed', '--state', 'open', '--json'),
      run('flows', 'list', '--name', 'two', '--state', 'failed'),
    ]);
    expect(JSON.parse(rest.output)).toMatchObject({ flowId: ids[2] });
    expect(JSON.parse(named.output)).toMatchObject({ flowId: ids[1], state: 'running' });
    expect(none).toEqual({ exitCode: 0, output: '', errors: expect.stringContaining('no flow matches.') });
  });

  it.each([
    [['--state', 'blocked'], '--state must be one of open, completed, failed, cancelled.'],
    [['--cursor', 'x'], '--cursor is not a nextCursor of a list of flows.'],
  ])('refuses %j with a message that names the option', async (args, sentence) => {
    const { exitCode, output, errors } = await run('flows', 'list', ...args);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
  });
});

describe('flowfabric flows cancel', () => {
  it('cancels the members before it returns, once, and prints how many', async () => {
    const { flowId } = await submit('ended', [{ name: 'a' }, { name: 'b', after: ['a'] }]);
    const cancel = (...args: string[]) =>
      runProcess({
        args: ['flows', 'cancel', flowId, '--reason', 'why', ...args],
        databaseUrl: database.url,
      });
    expect(await cancel('--by', 'ada')).toEqual({
      exitCode: 0,
      output: `${flowId}  cancelled (cancel_all); this command cancelled 2 members\n`,
      errors: '',
    });
    expect((await engine.flows.describe(flowId))!.counts).toEqual({ cancelled: 2 });
    expect(await cancel()).toMatchObject({
      exitCode: 0,
      output: `${flowId}  was already cancelled (cancel_all)\n`,
    });
    expect((await run('flows', 'describe', flowId)).output).toMatch(
      /^ {2}cancel +cancel_all by ada at \S+Z: why$/m,
    );
    expect((await run('flows', 'list', '--name', 'ended')).output).toMatch(
      / cancelled +2 +1 +\S+ +cancelled by ada: why$/m,
    );
  });

  it('waits for members that may finish with --wait, until Ctrl-C', async () => {
    const { flowId, members } = await submit('finishing', [{ name: 'a' }, { name: 'b', after: ['a'] }]);
    const a = await claim('finishing.a');
    const args = [
      'flows',
      'cancel',
      flowId,
      '--reason',
      'why',
      '--policy',
      'cancel_pending',
      '--wait',
      '--json',
    ];
    const interrupted = startCommand({ args, databaseUrl: database.url });
    await expect
      .poll(async () => (await engine.executions.describe(members['b']!))?.state, PATIENCE)
      .toBe('cancelled');
    interrupted.child.kill('SIGINT');
    expect(await interrupted.exitCode).toBe(130);
    const waiting = startCommand({ args, databaseUrl: database.url });
    await workerPort(engine).complete(a);
    expect(await waiting.exitCode).toBe(0);
    expect(JSON.parse(waiting.output())).toMatchObject({ flowId, policy: 'cancel_pending' });
    expect(await engine.flows.describe(flowId)).toMatchObject({ state: 'cancelled' });
  });

  it('is refused for a flow that has ended or does not exist', async () => {
    const { flowId } = await submit('over', [{ name: 'a' }]);
    await workerPort(engine).complete(await claim('over.a'));
    const [over, unknown] = await Promise.all([
      run('flows', 'cancel', flowId, '--reason', 'why'),
      run('flows', 'cancel', UNKNOWN, '--reason', 'why', '--json'),
    ]);
    expect(over).toMatchObject({
      exitCode: 4,
      output: `${flowId}  not cancelled: it had already ended (completed)\n`,
    });
    expect(unknown).toMatchObject({ exitCode: 3, output: `{"flowId":"${UNKNOWN}","outcome":"not_found"}\n` });
  });
});

describe('flowfabric events tail', () => {
  it('prints the events of flows and of their members', async () => {
    const { flowId, members } = await submit('told', [{ name: 'a' }, { name: 'b', after: ['a'] }]);
    await engine.flows.cancel(flowId, { reason: 'wrong', by: 'ada', wait: 'end' });
    await engine.executions.replay(members['b']!, { reason: 'after all' });
    const tail = (...args: string[]) =>
      run('events', 'tail', '--from', 'beginning', '--no-follow', '--flow', flowId, ...args);
    const [flow, all, types] = await Promise.all([
      tail('--family', 'flow'),
      tail('--json'),
      tail('--type', 'cancel_requested', '--json'),
    ]);
    const told = flow.output
      .trimEnd()
      .split('\n')
      .map((line) => line.replace(/^\S+ +/, ''));
    expect(told).toEqual([
      expect.stringMatching(/^flow\.submitted +\{fp:.* told$/),
      expect.stringMatching(/^flow\.cancel_requested +\{fp:.* cancel_all, by ada: wrong$/),
      expect.stringMatching(/^flow\.cancelled +\{fp:\S+$/),
      expect.stringMatching(/^flow\.reopened +\{fp:\S+$/),
    ]);
    const chain = await submit('again', [
      { name: 'a' },
      { name: 'b', after: ['a'] },
      { name: 'c', after: ['b'] },
    ]);
    await workerPort(engine).fail(await claim('again.a'), { message: 'no', retry: 'never' });
    await workerPort(engine).fireTimers();
    await engine.executions.replay(chain.members['a']!, { reason: 'after all', by: 'ada' });
    const again = await run(
      'events',
      'tail',
      '--from',
      'beginning',
      '--no-follow',
      '--flow',
      chain.flowId,
      '--type',
      'replayed',
    );
    const replayed =
      /^\S+ +operator\.replayed .* replay 1 after (failed|skipped), from failed_step, by ada: after all$/;
    expect(again.output.trimEnd().split('\n')).toEqual(Array(3).fill(expect.stringMatching(replayed)));
    expect(flow.errors).toContain(`--family flow --flow '${flowId}' --no-follow --from`);
    const events = all.output
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(events.every((event) => event['flowId'] === flowId)).toBe(true);
    expect(events.filter(({ family }) => family === 'completion')).toHaveLength(2);
    expect(JSON.parse(types.output)).toMatchObject({
      family: 'flow',
      policy: 'cancel_all',
      namespace: 'told',
    });
  });
});
