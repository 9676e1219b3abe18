/**
 * Where races of flows run: a fresh flow for each permutation, running members, and the check that ends every race: no
 * deadlock, no contradiction, nothing forgotten, and any process can finish what is left. What a single race expects is
 * in the test files.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect } from 'vitest';
import { testDatabase } from '../../setup/database.ts';
import { connect } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import { formatExecutionId, parseExecutionId } from '../../../src/contract/ids.ts';
import type { MemberRequest } from '../../../src/contract/flows.ts';
import { runRace, type Interleaving, type StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { MOST_ORDERS, transaction, type Scene } from '../arena.ts';
import {
  ask,
  callsOf,
  type Answer,
  type Ask,
  type Call,
  type Calls,
  type FunctionNames,
  type Lease,
} from '../calls.ts';
import { flowCallsOf, PARTITION, type FlowCalls, type FlowFunctionNames } from './calls.ts';
import { flowFaults, flowLeftovers, memberFaults } from './invariants.ts';
import { workerPort } from '../../../src/connect/port.ts';

export type NamedMember = Omit<MemberRequest, 'kind'>;

/** The flow of one permutation: its members by name, and the leases of those that run. */
export interface FlowScene extends Scene {
  flow: string;
  flowId: string;
  members: Record<string, string>;
  held: Record<string, Lease>;
}

type Given = (arena: FlowArena) => Promise<FlowScene>;
type Placed = (scene: FlowScene) => Call;

export interface FlowRace {
  given: Given;
  /** One transaction each; more steps where a list is given. */
  sessions: Record<string, Placed | StepLike<Scene>[]>;
  /** Steps that may be refused, and with which message. */
  refused?: RegExp;
  /** Before any remaining work is done. */
  atOnce?: (outcome: Interleaving, scene: FlowScene) => Promise<void> | void;
  /** After all remaining work is done. */
  check: (outcome: Interleaving, scene: FlowScene) => Promise<void> | void;
  permutations?: string[][];
}

export interface FlowArena {
  database: TestDatabase;
  engine: Connection;
  calls: Calls;
  flows: FlowCalls;
  through: Ask;
  race(race: FlowRace): Promise<Interleaving[]>;
  close(): Promise<void>;
}

export async function flowArenaOn(
  database: TestDatabase,
  names: FunctionNames & FlowFunctionNames = {},
): Promise<FlowArena> {
  const { siblings, ...others } = names;
  const engine = await connect({
    databaseUrl: database.url,
    reconcile: 'off',
    listen: 'off',
    defaultPolicy: {},
    poolSize: 2,
  });
  const arena: FlowArena = {
    database,
    engine,
    calls: callsOf(others),
    flows: flowCallsOf(siblings === undefined ? {} : { siblings }),
    through: (text, params) => database.query(text, params),
    race: (race) => runFlowRace(arena, race, Object.keys(names).length === 0 ? MOST_ORDERS : undefined),
    close: () => engine.close(),
  };
  return arena;
}

/** An arena for the tests of one file, on a separate database. */
export function useFlowArena(): FlowArena {
  let opened: FlowArena;
  beforeAll(async () => {
    opened = await flowArenaOn(await testDatabase());
  });
  afterAll(async () => {
    await opened?.close();
    await opened?.database.drop();
  });
  return {
    get database() {
      return opened.database;
    },
    get engine() {
      return opened.engine;
    },
    get calls() {
      return opened.calls;
    },
    get flows() {
      return opened.flows;
    },
    through: (text, params) => opened.through(text, params),
    race: (race) => opened.race(race),
    close: () => opened.close(),
  };
}

function runFlowRace(arena: FlowArena, race: FlowRace, most: number | undefined): Promise<Interleaving[]> {
  const sessions = Object.entries(race.sessions).map(([name, steps]) => [
    name,
    typeof steps === 'function' ? transaction((scene) => steps(scene as FlowScene)) : steps,
  ]);
  return runRace<FlowScene>({
    ...(most === undefined ? {} : { most }),
    connect: () => arena.database.connect(),
    setup: () => race.given(arena),
    sessions: Object.fromEntries(sessions) as Record<string, StepLike<FlowScene>[]>,
    permutations: race.permutations ?? 'all',
    check: async (outcome, scene) => {
      const failures = Object.entries(outcome.results).flatMap(([step, result]) =>
        result.ok || race.refused?.test(result.message) === true ? [] : [`${step}: ${result.message}`],
      );
      expect(outcome.deadlocks, 'deadlocks').toBe(0);
      expect(failures, 'failed steps').toEqual([]);
      expect(await flowFaults(arena.through, [scene.flow]), 'faults of flows').toEqual([]);
      await race.atOnce?.(outcome, scene);
      await workerPort(arena.engine).fireTimers();
      await expectSettled(arena, [scene.flow]);
      await race.check(outcome, scene);
    },
  });
}

/** Nothing contradicts itself, and no work is left. */
export async function expectSettled(
  { through }: Pick<FlowArena, 'through'>,
  flows: readonly string[],
): Promise<void> {
  expect(await flowFaults(through, flows), 'faults of flows').toEqual([]);
  expect(await memberFaults(through, flows), 'faults of members').toEqual([]);
  expect(await flowLeftovers(through, flows), 'left to be done').toEqual([]);
}

/** A flow with running members and others that have already ended. */
export function flowOf(members: readonly NamedMember[], running: readonly string[] = []): Given {
  return async (arena) => {
    const kind = randomUUID();
    const flowId = formatExecutionId(PARTITION, randomUUID());
    const made = await arena.engine.flows.submit({
      name: 'race',
      flowId,
      members: members.map((member) => ({ kind: `${kind}.${member.name}`, ...member })),
    });
    return claimed(arena, sceneOf(flowId, made.members), running);
  };
}

export function sceneOf(flowId: string, members: Record<string, string>): FlowScene {
  const uuids = Object.fromEntries(
    Object.entries(members).map(([name, id]) => [name, parseExecutionId(id).uuid]),
  );
  return {
    flowId,
    flow: parseExecutionId(flowId).uuid,
    members: uuids,
    held: {},
    ids: Object.values(uuids),
    leases: [],
    routeId: 0,
    logged: 0,
  };
}

export async function claimed(
  arena: FlowArena,
  scene: FlowScene,
  names: readonly string[],
): Promise<FlowScene> {
  for (const name of names) {
    const [answer] = await ask(arena.through, arena.calls.claim(await routeOf(arena, scene, name), 1, 'w-1'));
    if (answer === undefined) throw new Error(`${name} cannot be claimed`);
    scene.held[name] = { id: answer.id!, attempt: answer.attempt, epoch: answer.epoch };
  }
  return scene;
}

export async function routeOf(arena: FlowArena, scene: FlowScene, name: string): Promise<number> {
  const found = await arena.through('SELECT route_id FROM ff_execution WHERE execution_id = $1', [
    scene.members[name],
  ]);
  return found.rows[0]!.route_id as number;
}

/** Does something before the race, whose results do not count. */
export function after(given: Given, work: (arena: FlowArena, scene: FlowScene) => Promise<unknown>): Given {
  return async (arena) => {
    const scene = await given(arena);
    await work(arena, scene);
    return scene;
  };
}

/** The state of each member: how it ended, or how it waits. */
export async function statesOf(
  { through }: FlowArena,
  { members }: FlowScene,
): Promise<Record<string, string>> {
  const found = await through(
    `SELECT execution_id, CASE lifecycle_phase WHEN 'terminal' THEN terminal_outcome::text WHEN 'active' THEN 'active'
       ELSE eligibility_state::text END AS state
     FROM ff_execution WHERE execution_id = ANY ($1)`,
    [Object.values(members)],
  );
  const states = new Map(found.rows.map((row) => [row.execution_id, row.state as string]));
  return Object.fromEntries(Object.entries(members).map(([name, id]) => [name, states.get(id)!]));
}

export async function outcomeOf({ through }: FlowArena, { flow }: FlowScene): Promise<string | null> {
  const found = await through('SELECT outcome::text FROM ff_flow_progress WHERE flow_id = $1', [flow]);
  return found.rows[0]!.outcome as string | null;
}

/** All results about one member in all sessions, as text. */
export function saidOf(outcome: Interleaving, id: string | undefined): string[] {
  return Object.values(outcome.results).flatMap((result) =>
    result.ok && Array.isArray(result.value)
      ? (result.value as Answer[]).filter((answer) => answer.id === id).map((answer) => answer.word)
      : [],
  );
}

/** The member was unblocked once, and one worker gets it. */
export async function expectFiredOnce(
  arena: FlowArena,
  outcome: Interleaving | null,
  scene: FlowScene,
  name: string,
): Promise<void> {
  const id = scene.members[name];
  if (outcome !== null)
    expect(
      saidOf(outcome, id).filter((word) => word === 'unblocked'),
      `how often ${name} was let go`,
    ).toHaveLength(1);
  const found = await arena.through('SELECT count(*) AS n FROM ff_ready WHERE execution_id = $1', [id]);
  expect(Number(found.rows[0]!.n), `places of ${name} in the queue`).toBe(1);
  const route = await routeOf(arena, scene, name);
  const claims = [
    ...(await ask(arena.through, arena.calls.claim(route, 1, 'w-2'))),
    ...(await ask(arena.through, arena.calls.claim(route, 1, 'w-3'))),
  ];
  expect(claims, `claims of ${name}`).toMatchObject([{ id, word: 'claimed' }]);
  scene.held[name] = { id: id!, attempt: claims[0]!.attempt, epoch: claims[0]!.epoch };
}

/** Ends a running member outside of the race, and resolves its edges. */
export async function finish(arena: FlowArena, scene: FlowScene, name: string): Promise<void> {
  if (scene.held[name] === undefined) await claimed(arena, scene, [name]);
  const answers = await ask(arena.through, arena.calls.complete([scene.held[name]!]));
  expect(answers.map(({ word }) => word)).toContain('completed');
  await workerPort(arena.engine).fireTimers();
}
