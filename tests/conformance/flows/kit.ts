/**
 * Flows for tests: every member has a kind of its own, so that a test claims the one it means.
 */
import { expect } from 'vitest';
import type { FlowSnapshot, MemberRequest } from '../../../src/contract/flows.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { newKind, type Bench } from '../open.ts';

export type NamedMember = Omit<MemberRequest, 'kind'>;

/** Submits a flow and returns ways to drive it. */
export async function submitFlow(bench: Bench, members: readonly NamedMember[]) {
  const base = newKind();
  const kindOf = (member: string) => `${base}.${member}`;
  const flow = await bench.engine.flows.submit({
    name: 'flow',
    members: members.map((member) => ({ kind: kindOf(member.name), ...member })),
  });
  return { ...flow, ...movesOf(bench, flow.flowId, kindOf), kindOf };
}

/** An open flow whose members are not runnable yet. */
export async function openFlow(bench: Bench, names: readonly string[]) {
  const base = newKind();
  const kindOf = (member: string) => `${base}.${member}`;
  const { flowId } = await bench.engine.flows.create({ name: 'built' });
  const { members } = await bench.engine.flows.addMembers(
    flowId,
    names.map((name) => ({ name, kind: kindOf(name) })),
  );
  return { flowId, members, kindOf, ...movesOf(bench, flowId, kindOf) };
}

function movesOf(bench: Bench, flowId: string, kindOf: (member: string) => string) {
  const claim = async (member: string): Promise<Claim> => {
    const [claimed] = await bench.claim({ kinds: [kindOf(member)], limit: 1 });
    if (claimed === undefined) throw new Error(`${member} cannot be claimed`);
    return claimed;
  };
  const describe = async (): Promise<FlowSnapshot> => (await bench.engine.flows.describe(flowId))!;
  return {
    claim,
    describe,
    async complete(member: string, result?: unknown) {
      expect(await bench.port.complete(await claim(member), result)).toMatchObject({
        outcome: 'completed',
      });
      await bench.port.fireTimers();
    },
    async fail(member: string) {
      const failed = await bench.port.fail(await claim(member), { message: 'no', retry: 'never' });
      expect(failed).toMatchObject({ outcome: 'failed' });
      await bench.port.fireTimers();
    },
    /** The state of every member, by name. */
    async states(): Promise<Record<string, string>> {
      return Object.fromEntries((await describe()).members.map(({ name, state }) => [name, state]));
    },
    async state(): Promise<string> {
      return (await describe()).state;
    },
  };
}
