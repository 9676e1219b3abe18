/**
 * Many parties at once, uncontrolled: a seeded mix of all operations over a small set of executions with short leases
 * and a clock that jumps. Afterwards the rows agree, every result was kept, and everything left can still be finished.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { picks } from '../../setup/chance.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, HOUR_MS, type Arena } from '../arena.ts';
import { ask, LEASE_MS, type Answer, type Ask, type Call, type Lease } from '../calls.ts';
import { unkeptAnswers, violationsOf } from '../invariants.ts';
import { patiently } from '../../setup/patience.ts';

const SEED = 20_251;
const PARTIES = 6;
const OPERATIONS_EACH = 700;
const BATCH = 8;
/** The set stays small, so that the parties keep colliding. */
const WANTED_OPEN = 24;
const MAX_DRAIN_PASSES = 50;
/** A move of the clock is half a lease, so delays and leases come due while others act on them. */
const DELAY_MS = LEASE_MS;
const POLICY = {
  retry_policy: { max_retries: 1_000, backoff: { type: 'fixed', delay_ms: DELAY_MS } },
  max_replay_count: 5,
};
/** Expires while others act on the execution. */
const LIMITED = {
  ...POLICY,
  timeout_policy: { execution_deadline_ms: 4 * DELAY_MS, attempt_timeout_ms: DELAY_MS },
};

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** What all parties share: which executions are open, and every lease ever granted on them. */
interface Board {
  routeId: number;
  open: Set<string>;
  leases: Map<string, Lease[]>;
  answers: Answer[];
  /** Which children each execution was to spawn, committed or not. */
  children: Map<string, string[]>;
  /** Everything that was to spawn some, most recent last. */
  parents: Set<string>;
  /** Everything that was submitted or spawned, ended or not. */
  known: Set<string>;
  ended: Set<string>;
  /** Everything that was suspended or has a waitpoint, most recent last. */
  waiting: Set<string>;
}

type Pick = (below: number) => number;

const ROUTE = { lane: 'default', kind: randomUUID() };
/** How often each is chosen, relative to the others. */
const WEIGHTS = {
  submit: 1,
  claim: 7,
  complete: 2,
  renew: 2,
  fail: 1,
  retry: 1,
  release: 1,
  pause: 4,
  record: 3,
  spawn: 2,
  cancel: 1,
  revoke: 1,
  lapse: 2,
  fire: 2,
  clock: 1,
  replay: 1,
  prioritise: 1,
  forget: 1,
  create: 1,
  suspend: 5,
  deliver: 8,
  settleFamilies: 3,
};
const WEIGHTED = (Object.keys(WEIGHTS) as (keyof typeof WEIGHTS)[]).flatMap((name) =>
  Array.from({ length: WEIGHTS[name] }, () => name),
);

function someOpen(board: Board, pick: Pick): string[] {
  const open = [...board.open];
  const from = pick(open.length + 1);
  const some = open.slice(from, from + 1 + pick(BATCH));
  return pick(2) === 0 ? some : some.toReversed();
}

/** Mostly the newest lease of each, sometimes an older one, as a returning worker would use. */
function someLeases(board: Board, pick: Pick): Lease[] {
  return someOpen(board, pick).flatMap((id) => {
    const known = board.leases.get(id) ?? [];
    const lease = known.at(pick(4) === 0 ? pick(known.length + 1) : -1);
    return lease === undefined ? [] : [lease];
  });
}

function submission(board: Board, pick: Pick): Call | null {
  if (board.open.size >= WANTED_OPEN) return null;
  const ids = Array.from({ length: 1 + pick(BATCH) }, () => randomUUID());
  // Known to the others before it is committed, so that they also ask for what does not exist yet.
  ids.forEach((id) => board.open.add(id));
  const delayMs = pick(3) === 0 ? DELAY_MS : 0;
  return arena.calls.submit({ ids, routes: [ROUTE], delayMs, policy: pick(2) === 0 ? POLICY : LIMITED });
}

/** Executions that are known to have ended. */
function someEnded(board: Board, pick: Pick): string[] {
  const ended = [...board.ended];
  const from = pick(ended.length + 1);
  return ended.slice(from, from + 1 + pick(3));
}

/** One or a few children of one running execution; known to its parent at once, to the others once they exist. */
function spawning(board: Board, pick: Pick): Call | null {
  const parent = someLeases(board, pick)[0];
  if (parent === undefined || board.open.size >= 2 * WANTED_OPEN) return null;
  const ids = Array.from({ length: 1 + pick(3) }, () => randomUUID());
  board.children.set(parent.id, [...(board.children.get(parent.id) ?? []), ...ids]);
  board.parents.delete(parent.id);
  board.parents.add(parent.id);
  return arena.calls.spawn(parent, { ids, routes: [ROUTE], policy: POLICY });
}

/** For a time, for some of the children, or for whichever comes first. */
function pausing(board: Board, pick: Pick): Call | null {
  const leases = someLeases(board, pick);
  if (leases.length === 0) return null;
  // Only those that exist: nobody would be notified of the end of a child that never existed.
  const childrenOf = ({ id }: Lease) =>
    (board.children.get(id) ?? []).filter((child) => board.known.has(child));
  const lease = leases.find((one) => childrenOf(one).length > 0);
  if (lease === undefined) return arena.calls.pause(leases, { delayMs: DELAY_MS });
  const children = childrenOf(lease);
  const needed = 1 + pick(children.length);
  const delay = pick(3) === 0 ? { delayMs: DELAY_MS } : {};
  return arena.calls.pause([lease], { children, needed, ...delay });
}

const WAITPOINTS = ['one', 'two'];
const TIMEOUTS = ['fail', 'cancel', 'expire', 'resume', 'escalate', undefined] as const;

/** Until some of the waitpoints get signals, or a time, or some of the children end. */
function suspending(board: Board, pick: Pick): Call | null {
  const lease = someLeases(board, pick)[0];
  if (lease === undefined) return null;
  const which = pick(2);
  const waitpoints = WAITPOINTS.map((name) => `${name}-${which}`);
  const by = (['signals', 'waitpoints', 'sources'] as const)[pick(3)]!;
  const onTimeout = TIMEOUTS[pick(TIMEOUTS.length)];
  const children = (board.children.get(lease.id) ?? []).filter((child) => board.known.has(child));
  return arena.calls.suspend(lease, {
    name: `wait-${which}`,
    waitpoints,
    condition: { kind: 'count', n: 1 + pick(2), by, waitpoints },
    ...(onTimeout === undefined ? {} : { onTimeout, timeoutMs: DELAY_MS }),
    ...(children.length > 0 && pick(2) === 0 ? { children, needed: 1 + pick(children.length) } : {}),
    ...(pick(3) === 0 ? { wakeMs: DELAY_MS } : {}),
    resumeDelayMs: pick(3) === 0 ? DELAY_MS : 0,
    mode: pick(5) === 0 ? 'poll' : 'suspend',
  });
}

/** Mostly to one that was last known to wait, so that it gets signals while others act on it. */
function signalling(board: Board, pick: Pick): Call | null {
  const waiting = [...board.waiting].slice(-BATCH);
  const id = pick(5) === 0 ? someOpen(board, pick)[0] : waiting[pick(waiting.length)];
  if (id === undefined) return null;
  const waitpoint = `${WAITPOINTS[pick(2)]}-${pick(2)}`;
  return arena.calls.deliver(id, { waitpoint, source: `source-${pick(3)}`, key: `key-${pick(4)}` });
}

/** The next call of a party; null when there is nothing to act on. */
function nextCall(board: Board, pick: Pick, worker: string): Call | null {
  const name = WEIGHTED[pick(WEIGHTED.length)] ?? 'claim';
  if (name === 'submit') return submission(board, pick);
  if (name === 'claim') return arena.calls.claim(board.routeId, 1 + pick(BATCH), worker);
  if (name === 'spawn') return spawning(board, pick);
  if (name === 'settleFamilies')
    return arena.calls.settleFamilies([...board.parents].slice(-BATCH), 1 + pick(2));
  if (name === 'pause') return pausing(board, pick);
  if (name === 'suspend') return suspending(board, pick);
  if (name === 'deliver') return signalling(board, pick);
  if (name === 'fire') return arena.calls.fire(someOpen(board, pick));
  if (name === 'replay')
    return arena.calls.replay(someEnded(board, pick), pick(2) === 0 ? 'start' : 'failed_step');
  if (name === 'prioritise') return arena.calls.prioritise(someOpen(board, pick), 100 + pick(3));
  if (name === 'forget') return arena.calls.forget(someEnded(board, pick));
  if (name === 'clock')
    return { sql: 'UPDATE ff_clock SET offset_ms = offset_ms + $1', params: [LEASE_MS / 2] };
  if (name === 'cancel')
    return arena.calls.cancel(
      someOpen(board, pick)
        .slice(0, 1)
        .map((id) => ({ id })),
    );
  const leases = someLeases(board, pick);
  if (leases.length === 0) return null;
  if (name === 'create')
    return arena.calls.create(
      leases[0]!,
      WAITPOINTS.map((one) => ({ name: `${one}-${pick(2)}` })),
      DELAY_MS,
    );
  if (name === 'record') return arena.calls.record(leases, `step-${pick(4)}`, worker);
  return arena.calls[name](leases);
}

function note(board: Board, answers: Answer[]): void {
  for (const answer of answers) {
    const { id, word, attempt, epoch } = answer;
    // Submissions and refusals are results too, but require no events.
    board.answers.push(answer);
    if (id === null) continue;
    if (word === 'submitted') {
      board.open.add(id);
      board.known.add(id);
    }
    if (word === 'claimed') board.leases.set(id, [...(board.leases.get(id) ?? []), { id, attempt, epoch }]);
    if (['completed', 'failed', 'cancelled', 'expired', 'execution_timed_out'].includes(word)) {
      board.open.delete(id);
      board.ended.add(id);
    }
    if (['suspended', 'open', 'created'].includes(word)) {
      board.waiting.delete(id);
      board.waiting.add(id);
    }
    if (word === 'replayed') board.open.add(id);
    if (word === 'replayed' || word === 'forgotten') board.ended.delete(id);
  }
}

async function play(board: Board, through: Ask, party: number): Promise<number> {
  const pick = picks(SEED + party);
  let done = 0;
  for (let turn = 0; turn < OPERATIONS_EACH; turn += 1) {
    const call = nextCall(board, pick, `w-${party}`);
    if (call === null) continue;
    note(board, await ask(through, call));
    done += 1;
  }
  return done;
}

/** Finishes everything: an execution that nothing can reach any more would stay open. */
async function drain(board: Board): Promise<number> {
  const { calls, through } = arena;
  for (let pass = 0; pass < MAX_DRAIN_PASSES; pass += 1) {
    const { rows } = await through(
      `SELECT execution_id AS id FROM ff_execution WHERE lifecycle_phase <> 'terminal'`,
    );
    if (rows.length === 0) return 0;
    const ids = rows.map((row) => row.id as string);
    await database.moveClock(HOUR_MS);
    const held = await through(
      'SELECT execution_id AS id, attempt_index AS attempt, lease_epoch AS epoch FROM ff_lease',
    );
    note(board, await ask(through, calls.lapse(held.rows as unknown as Lease[])));
    note(board, await ask(through, calls.fire(ids)));
    const suspended = await through(
      `SELECT execution_id AS id, name FROM ff_suspension JOIN ff_waitpoint USING (execution_id) WHERE retired_by = 0`,
    );
    for (const { id, name } of suspended.rows) {
      note(
        board,
        await ask(through, calls.deliver(id as string, { waitpoint: name as string, source: randomUUID() })),
      );
    }
    const claimed = await ask(through, calls.claim(board.routeId, ids.length, 'drain'));
    note(board, claimed);
    const leases = claimed.map(({ id, attempt, epoch }) => ({ id: id ?? '', attempt, epoch }));
    note(board, await ask(through, calls.complete(leases)));
  }
  return board.open.size;
}

/** Does the work on families until none is left; returns children that are then not as their parent is. */
async function familiesAtRest(board: Board): Promise<unknown[]> {
  const { calls, through } = arena;
  for (;;) {
    const left = await through(`SELECT DISTINCT execution_id AS id FROM ff_timer WHERE kind = 'family'`);
    if (left.rows.length === 0) break;
    note(board, await ask(through, calls.settleFamilies(left.rows.map(({ id }) => id as string))));
  }
  const wrong = await through(
    `SELECT c.execution_id, p.lifecycle_phase FROM ff_execution c JOIN ff_execution p ON p.execution_id = c.parent_id
     WHERE CASE WHEN p.lifecycle_phase = 'terminal' OR NOT ff_is_kept_child(p.execution_id, c.spawn_place, c.created_at_ms)
       THEN c.lifecycle_phase <> 'terminal' ELSE ff_ended_with_parent(c.execution_id) END`,
  );
  return wrong.rows;
}

it(
  'a mix of everything leaves no contradiction, no broken promise and nothing stuck',
  async () => {
    const board: Board = {
      routeId: 0,
      open: new Set(),
      leases: new Map(),
      answers: [],
      children: new Map(),
      parents: new Set(),
      known: new Set(),
      ended: new Set(),
      waiting: new Set(),
    };
    const first = arena.calls.submit({ ids: [randomUUID()], routes: [ROUTE], policy: POLICY });
    board.routeId = Number((await arena.through(first.sql, first.params)).rows[0]?.route_id);

    const clients = await Promise.all(Array.from({ length: PARTIES }, () => database.connect()));
    // A deadlock, a failed assertion or any other error ends the test here.
    const done = await Promise.all(
      clients.map((client, party) => play(board, (text, params) => client.query(text, params), party)),
    );
    expect(done.reduce((sum, one) => sum + one, 0)).toBeGreaterThan((PARTIES * OPERATIONS_EACH) / 2);
    expect(await violationsOf(arena.through, null)).toEqual([]);
    expect(await unkeptAnswers(arena.through, board.answers, 0)).toEqual([]);
    const words = new Set(board.answers.map(({ word }) => word));
    for (const word of [
      'completed',
      'failed',
      'retry_scheduled',
      'released',
      'renewed',
      'cancelled',
      'revoked',
    ]) {
      expect(words, 'what the mix came by').toContain(word);
    }
    for (const word of [
      'paused',
      'recorded',
      'replayed',
      'changed',
      'execution_timed_out',
      'attempt_timed_out',
      'forgotten',
    ]) {
      expect(words, 'what the mix came by').toContain(word);
    }
    for (const word of [
      'suspended',
      'open',
      'created',
      'resumed',
      'counted',
      'buffered',
      'duplicate',
      'closed',
    ]) {
      expect(words, 'what the mix came by').toContain(word);
    }
    for (const word of ['lapsed', 'fired', 'lease_expired', 'not_active', 'stale_lease', 'marked', 'done']) {
      expect(words, 'what the mix came by').toContain(word);
    }

    expect(await familiesAtRest(board)).toEqual([]);
    expect(await drain(board)).toBe(0);
    expect(await violationsOf(arena.through, null)).toEqual([]);
    expect(await unkeptAnswers(arena.through, board.answers, 0)).toEqual([]);
  },
  patiently(60_000),
);
