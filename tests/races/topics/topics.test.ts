/**
 * Races for a topic: a wait that begins while something is published, and one that is told while it times out or is
 * cancelled. Whatever the order, the wait ends once, and what was published is not lost. A wait that does not look at the
 * home after it was registered loses it.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure, runRace, stepValue } from '../../../src/testing/stepper.ts';
import type { Interleaving, StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, isBefore, leased, type Arena, type Scene } from '../arena.ts';
import type { Ask, Call, Lease } from '../calls.ts';
import { violationsOf } from '../invariants.ts';

const PARTITION = 7;
const DATA = { parcel: 7 };
const TIMEOUT_MS = 1_000;

let database: TestDatabase;
let arena: Arena;
beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});
afterAll(() => database?.drop());

interface TopicScene extends Scene {
  topic: string;
  lease: Lease;
  /** What the waiter has read of the home. */
  home: { last: number; offer: unknown };
}

async function scene(): Promise<TopicScene> {
  const given = await leased(1)(arena);
  return { ...given, topic: randomUUID(), lease: given.leases[0]!, home: { last: 0, offer: null } };
}

function suspendCall({ topic, lease, home }: TopicScene, timeoutMs: number | null = null): Call {
  const wait = {
    name: `topic:${topic}`,
    key: '',
    condition: { kind: 'topic', namespace: 'default', topic, ...home },
    timeout_ms: timeoutMs,
    on_timeout: 'resume',
    resume_delay_ms: 0,
    reason: 'signal',
  };
  return {
    sql: `SELECT * FROM ff_suspend($1, $2, $3, $4, 'suspend', false, $5, '[]', 100, NULL, NULL, NULL)`,
    params: [lease.id, PARTITION, lease.attempt, lease.epoch, JSON.stringify([wait])],
  };
}

const publishCall = ({ topic }: TopicScene): Call => ({
  sql: `SELECT * FROM ff_publish('default', $1, $2, $3, 1000000, $4)`,
  params: [topic, PARTITION, randomUUID(), JSON.stringify(DATA)],
});

async function readHome(through: Ask, { topic }: TopicScene): Promise<TopicScene['home']> {
  const { rows } = await through(
    `SELECT t.last_seq::int AS last, jsonb_build_object('seq', p.seq, 'publishedAtMs', p.published_at_ms, 'data', p.payload) AS offer
     FROM ff_topic t JOIN ff_published p ON p.seq = t.last_seq WHERE t.topic = $1`,
    [topic],
  );
  return (rows[0] as TopicScene['home'] | undefined) ?? { last: 0, offer: null };
}

/** Tells whoever is given what is published after a number; returns the outcomes. */
async function tell(through: Ask, topic: string, ids: string[], after: number): Promise<string[]> {
  const { rows } = await through(
    `SELECT t.outcome FROM (SELECT * FROM ff_published WHERE topic = $1 AND seq > $3 ORDER BY seq LIMIT 1) p,
       ff_tell_topic($2, 'default', $1, p.seq, p.published_at_ms, p.payload) t`,
    [topic, ids, after],
  );
  return rows.map(({ outcome }) => String(outcome));
}

async function waiting(through: Ask, topic: string): Promise<string[]> {
  const { rows } = await through('SELECT execution_id FROM ff_topic_wait WHERE topic = $1', [topic]);
  return rows.map((row) => String(row['execution_id']));
}

/** How the wait ended, and the state of the execution. */
async function endOf({
  topic,
  lease,
}: TopicScene): Promise<{ end: unknown; phase: string; resumed: number }> {
  const { rows } = await database.query<{ end: unknown; phase: string; resumed: number }>(
    `SELECT coalesce(s.value #> '{topic,data}', s.value -> 'outcome') AS end, e.lifecycle_phase::text AS phase,
            (SELECT count(*)::int FROM ff_event v
             WHERE v.execution_id = e.execution_id AND v.family = 'signal' AND v.event_type = 'resumed') AS resumed
     FROM ff_execution e JOIN ff_step s ON s.execution_id = e.execution_id AND s.name = 'topic:' || $2
     WHERE e.execution_id = $1`,
    [lease.id, topic],
  );
  return rows[0]!;
}

type Steps = StepLike<TopicScene>[];
const calling = (name: string, call: (scene: TopicScene) => Call): Steps => [
  {
    name,
    run: async (session, at) => {
      await session.query('BEGIN');
      const { sql, params } = call(at);
      return (await session.query(sql, params)).rows;
    },
  },
  'COMMIT',
];

/** The waiter reads the home, registers its wait, and looks at the home again. */
function waiter(look: 'looks again' | 'does not look'): Steps {
  return [
    {
      name: 'read',
      run: async (session, at) => {
        at.home = await readHome((text, params) => session.query(text, params), at);
      },
    },
    ...calling('suspend', (at) => suspendCall(at)),
    ...(look === 'does not look'
      ? []
      : [
          {
            name: 'look',
            run: (session, at) =>
              tell((text, params) => session.query(text, params), at.topic, [at.lease.id], at.home.last),
          } satisfies Steps[number],
        ]),
  ];
}

const publisher: Steps = [
  ...calling('publish', publishCall),
  {
    name: 'tell',
    run: async (session, { topic }) => {
      const through: Ask = (text, params) => session.query(text, params);
      return tell(through, topic, await waiting(through, topic), 0);
    },
  },
];

async function checkSound(outcome: Interleaving, { lease }: TopicScene): Promise<void> {
  expect(outcome.deadlocks).toBe(0);
  expect(Object.entries(outcome.results).filter(([, result]) => !result.ok)).toEqual([]);
  expect(await violationsOf(arena.through, [lease.id])).toEqual([]);
}

function publishMeetsWait(look: 'looks again' | 'does not look'): Promise<Interleaving[]> {
  return runRace<TopicScene>({
    connect: () => database.connect(),
    setup: scene,
    sessions: { a: publisher, b: waiter(look) },
    check: async (outcome, at) => {
      await checkSound(outcome, at);
      const { end, phase, resumed } = await endOf(at);
      expect(end, 'what the wait received').toEqual(DATA);
      // It was there at once, and the lease was kept; or the execution was suspended and resumed once.
      const atOnce = stepValue<{ outcome: string }[]>(outcome, 'b.suspend')[0]!.outcome === 'satisfied';
      expect([phase, resumed]).toEqual(atOnce ? ['active', 0] : ['runnable', 1]);
      expect(await waiting(arena.through, at.topic)).toEqual([]);
    },
  });
}

describe('a wait that begins while something is published', () => {
  it('receives it in every order', async () => {
    const outcomes = await publishMeetsWait('looks again');
    const told = outcomes.flatMap((outcome) => stepValue<string[]>(outcome, 'a.tell'));
    const looked = outcomes.flatMap((outcome) => stepValue<string[]>(outcome, 'b.look'));
    // Each of the two was the one that told it, in some order.
    expect(told).toContain('resumed');
    expect(looked).toContain('resumed');
  });

  it('would lose it, if it did not look at the home afterwards', async () => {
    const failure: unknown = await publishMeetsWait('does not look').catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RaceFailure);
    expect((failure as RaceFailure).message).toContain('what the wait received');
  });
});

/** A suspended waiter of something that was published; its timeout has passed, and its timer is due. */
async function late(): Promise<TopicScene> {
  const at = await scene();
  const suspend = suspendCall(at, TIMEOUT_MS);
  await arena.through(suspend.sql, suspend.params);
  await database.moveClock(TIMEOUT_MS);
  const publish = publishCall(at);
  await arena.through(publish.sql, publish.params);
  return at;
}

const tellCall = ({ topic, lease }: TopicScene): Call => ({
  sql: `SELECT t.* FROM ff_published p, ff_tell_topic($2, 'default', $1, p.seq, p.published_at_ms, p.payload) t WHERE p.topic = $1`,
  params: [topic, [lease.id]],
});

describe('a wait that is told', () => {
  const against = (
    other: (at: TopicScene) => Call,
    check: (outcome: Interleaving, at: TopicScene) => Promise<void>,
  ): Promise<Interleaving[]> =>
    runRace<TopicScene>({
      connect: () => database.connect(),
      setup: late,
      sessions: { a: calling('call', tellCall), b: calling('call', other) },
      check: async (outcome, at) => {
        await checkSound(outcome, at);
        await check(outcome, at);
      },
    });

  it('while it times out ends once, with one or the other', async () => {
    const ends = new Set<string>();
    await against(
      ({ lease }) => arena.calls.fire([lease.id]),
      async (outcome, at) => {
        // Whoever finds it locked leaves it to the other.
        const { end, phase, resumed } = await endOf(at);
        ends.add(JSON.stringify(end));
        expect([phase, resumed]).toEqual(['runnable', 1]);
        if (isBefore(outcome, 'a.COMMIT', 'b.call')) expect(end).toEqual(DATA);
        if (isBefore(outcome, 'b.COMMIT', 'a.call')) expect(end).toBe('timed_out');
        expect(await waiting(arena.through, at.topic)).toEqual([]);
      },
    );
    expect([...ends].toSorted()).toEqual(['"timed_out"', JSON.stringify(DATA)]);
  });

  it('while it is cancelled is cancelled, and its wait is gone', async () => {
    await against(
      ({ lease }) => arena.calls.cancel([{ id: lease.id }]),
      async (outcome, at) => {
        const { end, phase, resumed } = await endOf(at);
        expect(phase).toBe('terminal');
        const isTold = isBefore(outcome, 'a.call', 'b.call');
        expect([end, resumed]).toEqual(isTold ? [DATA, 1] : ['pending', 0]);
        expect(await waiting(arena.through, at.topic)).toEqual([]);
      },
    );
  });

  it('twice at once is told once', async () => {
    await against(tellCall, async (outcome, at) => {
      expect(await endOf(at)).toMatchObject({ end: DATA, phase: 'runnable', resumed: 1 });
      expect(outcome.waited).toEqual([]);
    });
  });
});
