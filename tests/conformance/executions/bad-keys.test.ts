/**
 * Keys that are not accepted: those that look like something else, and those of executions that cannot have one.
 */
import { describe, expect, it } from 'vitest';
import { partitionOfKey } from '../../../src/contract/ids.ts';
import type { SubmitRequest } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
let keys = 0;

const newKey = (): string => `order-${(keys += 1)}`;

/** A request with a key and a kind of its own. */
function request(own: Partial<SubmitRequest> = {}): SubmitRequest & { key: string } {
  return { kind: newKind(), key: newKey(), ...own } as SubmitRequest & { key: string };
}

describe('a key that is not accepted', () => {
  const ID = '{fp:7}:01890000-0000-7000-8000-000000000000';
  for (const [what, key] of [
    ['an id', ID],
    ['the beginning of an id', '{fp:'],
    ['a uuid', ID.slice(7)],
    ['a uuid in upper case', ID.slice(7).toUpperCase()],
    ['nothing', ''],
    ['a mark', 'a\u0001b'],
    ['more than 256 bytes', 'x'.repeat(257)],
  ] as const)
    it(`is ${what}`, async () => {
      await expect(bench.engine.executions.submit(request({ key }))).rejects.toMatchObject({
        code: 'invalid_input',
        field: 'request.key',
      });
      await expect(bench.engine.executions.byKey(key)).rejects.toMatchObject({ field: 'key' });
    });

  it('is given with an id, twice in one call, or is missing beside ifExists', async () => {
    const one = request();
    const submit = bench.engine.executions.submit;
    await expect(submit({ ...one, executionId: ID })).rejects.toMatchObject({ field: 'request.key' });
    await expect(submit([one, one])).rejects.toMatchObject({ code: 'invalid_input', field: 'requests' });
    await expect(submit({ kind: one.kind, ifExists: 'refuse' })).rejects.toMatchObject({
      field: 'request.ifExists',
    });
    expect(await bench.engine.executions.byKey(one.key)).toBeNull();
  });

  it('is given to a child or to a member of a flow', async () => {
    const refused = { code: 'key_not_here' };
    const parent = await bench.running();
    await expect(bench.port.spawn(parent, [request()])).rejects.toMatchObject(refused);
    const member = { name: 'a', kind: newKind(), key: newKey() } as never;
    await expect(bench.engine.flows.submit({ name: 'f', members: [member] })).rejects.toMatchObject(refused);
    const flow = await bench.engine.flows.create({ name: 'f' });
    const [, place] = /^(\{fp:\d+\})/.exec(flow.flowId)!;
    let one = request();
    while (`{fp:${partitionOfKey('default', one.key)}}` !== place) one = request();
    const { executionId } = await bench.engine.executions.submit(one);
    await expect(
      bench.engine.flows.addMembers(flow.flowId, [{ name: 'b', executionId }] as never),
    ).rejects.toMatchObject(refused);
  });
});
