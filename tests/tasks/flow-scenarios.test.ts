/**
 * Whole scenarios: a deploy that waits for its tests and for two reviewers, and is rolled back when it fails to verify;
 * and a flow of future work that is cancelled as a whole.
 */
import { expect, test } from 'vitest';
import { atLeast, flow, handle, stream, task, TaskFailed, type ExecutionId } from '../../src/index.ts';
import { newKind, SOON, useCrew } from '../worker/crew.ts';

const crew = useCrew();

test('a deploy waits for three suites and two reviewers, and the rest is cancelled when it does not verify', async () => {
  const engine = await crew.connect();
  const order: string[] = [];
  const build = task(newKind(), { streams: { log: stream.summary() } });
  const builds = handle(build, async (_, ctx) => {
    await ctx.streams.log.patch({ compiled: 1 });
    await ctx.streams.log.patch({ linked: true, compiled: 2 });
    order.push('build');
    return 'artifact';
  });
  const suite = task<{ name: string; artifact: unknown }, string>(newKind(), { capabilities: ['tests'] });
  const suites = handle(suite, ({ name }) => {
    order.push(name);
    return name;
  });
  const deploying = flow(newKind(), (f) => {
    const built = f.add('build', build, null);
    const tested = ['unit', 'integration', 'e2e'].map((name) =>
      f.add(name, suite, { name }, { after: { artifact: built } }),
    );
    const deployed = f.handle('deploy', { alsoAfter: tested }, async (_, ctx) => {
      await ctx.waitFor('approval', { by: atLeast(2).distinctSources() });
      order.push('deploy');
      return 'deployed';
    });
    const verified = f.handle('verify', { after: { deployed } }, () => {
      throw new TaskFailed('it answers 500', { retry: 'never' });
    });
    f.handle('announce', { after: { verified } }, () => 'announced');
    f.handle('watch', { alsoAfter: [deployed] }, (_, ctx) => ctx.waitFor('never'));
    return verified;
  });
  crew.work(engine, { handlers: [builds, suites, ...deploying.handlers], capabilities: ['tests'] });
  const run = await engine.submitFlow(deploying);
  const deploy = run.members['deploy'] as ExecutionId;
  await expect.poll(async () => (await engine.executions.describe(deploy))?.state, SOON).toBe('suspended');
  expect(order[0]).toBe('build');
  expect(order.slice(1).toSorted()).toEqual(['e2e', 'integration', 'unit']);
  const say = (by: string) => engine.waitpoints.approve(deploy, 'approval', { by });
  expect(await say('ada')).toMatchObject({ effect: 'counted' });
  expect(await say('ada')).toMatchObject({ effect: 'not_counted' });
  expect((await engine.executions.describe(deploy))?.state).toBe('suspended');
  expect(await say('grace')).toMatchObject({ effect: 'resumed' });
  await expect
    .poll(async () => (await engine.executions.result(run.members['verify']!)).outcome, SOON)
    .toBe('failed');
  await run.cancel({ reason: 'it does not verify', wait: 'end' });
  const { members, state } = (await run.describe())!;
  // By this call or by another process: members are cancelled by whoever comes first.
  expect(members.find((member) => member.name === 'watch')?.state).toBe('cancelled');
  expect(state).toBe('cancelled');
  expect(
    members.filter((member) => !['completed', 'failed', 'skipped', 'cancelled'].includes(member.state)),
  ).toEqual([]);
  expect((await engine.streams.readSummary(run.members['build']!))?.document).toEqual({
    compiled: 2,
    linked: true,
  });
});

test('what always fails is retried as often as allowed, and a flow of future work is cancelled as a whole', async () => {
  const engine = await crew.connect();
  const hopeless = task(newKind());
  let tries = 0;
  const fails = handle(hopeless, () => {
    tries += 1;
    throw new Error('no');
  });
  crew.work(engine, { handlers: [fails] });
  const policy = { retry: { maxRetries: 2, backoff: { type: 'fixed', delay: 50 } } } as const;
  const { executionId } = await engine.executions.submit({ kind: hopeless.name, policy });
  expect(await engine.executions.wait(executionId)).toMatchObject({ outcome: 'failed' });
  expect(tries).toBe(3);
  const ahead = await engine.flows.submit({
    name: 'ahead',
    members: ['a', 'b'].map((name) => ({ name, kind: newKind() })),
  });
  const answer = await engine.flows.cancel(ahead.flowId, { reason: 'not needed', wait: 'end' });
  expect(answer).toMatchObject({ outcome: 'cancelled' });
  expect((answer as { cancelled: string[] }).cancelled.toSorted()).toEqual(
    Object.values(ahead.members).toSorted(),
  );
  expect((await engine.flows.describe(ahead.flowId))?.counts).toEqual({ cancelled: 2 });
});
