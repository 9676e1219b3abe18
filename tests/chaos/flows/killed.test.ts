/**
 * A process working on a flow is killed instead of sending its n-th statement, for every n of a flow with three levels:
 * another one continues, every member ends as it must, and no edge was forgotten.
 */
import { expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { MemberRequest } from '../../../src/contract/flows.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { flowFaults, flowLeftovers, memberFaults } from '../../races/flows/invariants.ts';
import { AGAIN, newKind, SOON, useCrew } from '../../worker/crew.ts';
import { startFlowProcess } from './processes.ts';
import { inTurns, timeFor } from '../steps/task-processes.ts';
import { workerPort } from '../../../src/connect/port.ts';

const PLACES = 3;
/** About as many as a whole run has statements, and a few around it. */
const PROCESSES = 40;
const LEASE_MS = 3_600_000;
const crew = useCrew();
const through = (text: string, params?: unknown[]) => crew.database.query(text, params);

/** A winner and a loser, a failure that is handled, and one that is not. */
const MEMBERS: Omit<MemberRequest, 'kind'>[] = [
  { name: 'fast' },
  { name: 'slow' },
  { name: 'bad' },
  { name: 'best', after: ['fast', 'slow'], join: { kind: 'any' } },
  { name: 'rescue', after: [{ from: 'bad', on: 'failure' }] },
  { name: 'never', after: ['bad'] },
  { name: 'end', after: ['best', 'rescue'] },
  { name: 'tail', after: [{ from: 'never', on: 'always' }, 'end'] },
];
const STEPS = [
  ['fast', 'complete', 'follows'],
  ['bad', 'fail', 'follows'],
  ['best', 'complete'],
  ['rescue', 'complete'],
  ['end', 'complete'],
  ['tail', 'complete'],
] as const;

interface Flow {
  kind: string;
  flowId: string;
}

async function runDoomed(engine: Connection, dieAt?: number): Promise<Flow & { statements: string[] }> {
  const kind = newKind();
  const { flowId } = await engine.flows.submit({
    name: 'doomed',
    members: MEMBERS.map((member) => ({ kind: `${kind}.${member.name}`, policy: AGAIN, ...member })),
  });
  const options = { url: crew.database.url, flowId, kind, leaseMs: LEASE_MS, steps: STEPS };
  const process = startFlowProcess(dieAt === undefined ? options : { ...options, dieAt });
  const { fate, statements } = await process.ended();
  // Two that look for work at the same moment may send fewer statements than in another run.
  expect(fate === 'SIGKILL' || dieAt === undefined || statements.length < dieAt).toBe(true);
  return { kind, flowId, statements };
}

/** Another process: it fires what is due and works on everything that is left. */
async function rescue(engine: Connection, flows: readonly Flow[]): Promise<void> {
  const kinds = flows.flatMap(({ kind }) => MEMBERS.map(({ name }) => `${kind}.${name}`));
  const request = { workerId: 'heir', workerInstanceId: 'heir', kinds, limit: 500, leaseMs: LEASE_MS };
  const round = async (): Promise<string[]> => {
    const { claims } = await workerPort(engine).claim(request);
    await Promise.all(
      claims.map((claim) =>
        claim.kind.endsWith('.bad')
          ? workerPort(engine).fail(claim, { message: 'no', retry: 'never' })
          : workerPort(engine).complete(claim),
      ),
    );
    const states = await through(
      'SELECT coalesce(outcome::text, $1) AS state FROM ff_flow_progress GROUP BY 1',
      ['open'],
    );
    return states.rows.map(({ state }) => state as string);
  };
  await expect.poll(round, { ...SOON, ...timeFor(1) }).toEqual(['completed']);
}

test(
  'every member ends as it must, no matter at which statement a process is killed',
  timeFor(PROCESSES),
  async () => {
    const engine = await crew.connect();
    const whole = await runDoomed(engine);
    for (const name of ['ff_complete(', 'ff_fail(', 'ff_cancel_siblings(', 'ff_tell_ends('])
      expect(whole.statements).toContainEqual(expect.stringContaining(name));
    const flows: Flow[] = [whole];
    const deaths = whole.statements.map((_, index) => index + 1);
    await inTurns(PLACES, deaths, async (dieAt) => void flows.push(await runDoomed(engine, dieAt)));
    const uuids = flows.map(({ flowId }) => parseExecutionId(flowId).uuid);
    expect(await flowFaults(through, uuids)).toEqual([]);

    await crew.database.moveClock(LEASE_MS + 1);
    const heir = await crew.connect({ reconcile: 'on' });
    await rescue(heir, flows);
    expect(await flowFaults(through, uuids)).toEqual([]);
    expect(await memberFaults(through, uuids)).toEqual([]);
    expect(await flowLeftovers(through, uuids)).toEqual([]);
    for (const { flowId } of flows) {
      const { members } = (await engine.flows.describe(flowId))!;
      const states = Object.fromEntries(members.map(({ name, state }) => [name, state]));
      expect(states).toEqual({
        fast: expect.stringMatching(/^(completed|cancelled)$/),
        slow: expect.stringMatching(/^(completed|cancelled)$/),
        bad: 'failed',
        best: 'completed',
        rescue: 'completed',
        never: 'skipped',
        end: 'completed',
        tail: 'completed',
      });
      // One of them won; the other one was not needed.
      expect([states['fast'], states['slow']]).toContain('completed');
    }
    const reports = heir.upkeep.reports().filter(({ name }) => name === 'lost-ends');
    expect(reports).toMatchObject([{ errors: 0, acted: 0 }]);
  },
);
