/**
 * Who is notified of what, derived from rows as the database returns them: no doorbell, no database.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import type { Hint } from '../../contract/protocol.ts';
import { announce, announcementOf, MEANINGS, type Answer, type Opened } from './announce.ts';

const NOBODY = { hint: undefined, flowWork: false, topicWork: false };

function hintOf(...answers: (Answer | Opened)[]): Partial<Hint> {
  const { hint } = announcementOf(answers);
  return Object.fromEntries(
    Object.entries(hint ?? {}).filter(([, value]) => value !== null && value !== 0 && value.length !== 0),
  );
}

it.each(['submitted', 'duplicate', 'fired', 'unblocked', 'replayed', 'changed', 'resumed'] as const)(
  'what is %s can be claimed',
  (outcome) => {
    expect(hintOf({ outcome, uuid: 'a', routeId: 7, dueInMs: null })).toEqual({
      routes: [7],
      count: 1,
    });
  },
);

it.each(['released', 'revoked', 'lapsed'] as const)(
  'what is %s can be claimed, and its output stops',
  (outcome) => {
    expect(hintOf({ outcome, uuid: 'a', routeId: 7 })).toEqual({
      routes: [7],
      count: 1,
      streams: ['a'],
    });
  },
);

it.each(['retry_scheduled', 'attempt_timed_out', 'paused', 'suspended', 'already_suspended'] as const)(
  'what is %s runs later, and its output stops',
  (outcome) => {
    expect(hintOf({ outcome, uuid: 'a', routeId: 7, dueInMs: 50 })).toEqual({
      dueInMs: 50,
      streams: ['a'],
    });
  },
);

it.each(['continued', 'appended'] as const)(
  'whoever follows the output is notified when it is %s',
  (outcome) => {
    expect(hintOf({ outcome, uuid: 'a' })).toEqual({ streams: ['a'] });
  },
);

it.each(['completed', 'failed', 'skipped', 'member_cancelled'] as const)(
  'what is %s has ended, and its flow was cared for in the same commit',
  (outcome) => {
    expect(announcementOf([{ outcome, uuid: 'a', routeId: 7 }])).toMatchObject({
      hint: { routes: [], ended: ['a'], dueInMs: null },
      flowWork: false,
    });
  },
);

it('what others ended may leave work to its flow, and a parent to notify', () => {
  for (const outcome of ['expired', 'cancelled', 'already_cancelled', 'reclaims_exhausted'] as const)
    expect(announcementOf([{ outcome, uuid: 'a', workerInstanceId: 'w' }])).toMatchObject({
      hint: { ended: ['a'], workers: ['w'], dueInMs: 0 },
      flowWork: true,
    });
});

it('dueInMs decides whether the parent of what timed out is notified', () => {
  const outcome = 'execution_timed_out';
  expect(hintOf({ outcome, uuid: 'a', dueInMs: null })).toEqual({ ended: ['a'] });
  expect(announcementOf([{ outcome, uuid: 'a', dueInMs: 0 }])).toMatchObject({
    hint: { ended: ['a'], dueInMs: 0 },
    flowWork: true,
  });
});

it.each(['more', 'flow_cancelled'] as const)(
  '%s is work for flows, and nothing for anybody else',
  (outcome) => {
    expect(announcementOf([{ outcome, uuid: null, routeId: null }])).toEqual({ ...NOBODY, flowWork: true });
  },
);

it('what was published is work for topics, and nothing for anybody else', () => {
  expect(announcementOf([{ outcome: 'published' }])).toEqual({ ...NOBODY, topicWork: true });
});

it('what is due later cannot be claimed; a deadline keeps nobody from claiming', () => {
  expect(hintOf({ outcome: 'submitted', routeId: 7, dueInMs: 50 })).toEqual({ dueInMs: 50 });
  expect(hintOf({ outcome: 'replayed', routeId: 7, deadlineInMs: 50 })).toEqual({
    routes: [7],
    count: 1,
    dueInMs: 50,
  });
  expect(hintOf({ outcome: 'delayed', routeId: 7, dueInMs: 50 })).toEqual({ dueInMs: 50 });
});

it('what is overdue is due now', () => {
  expect(announcementOf([{ outcome: 'suspended', dueInMs: -5 }]).hint?.dueInMs).toBe(0);
});

it('refusals, what is held and unknown outcomes notify nobody', () => {
  const nothing = Object.entries(MEANINGS).flatMap(([outcome, meaning]) => (meaning === null ? outcome : []));
  for (const outcome of [...nothing, 'constructor', 'of a later version'] as Answer['outcome'][])
    expect(
      announcementOf([
        { outcome, uuid: 'a', routeId: 7, dueInMs: 1, workerInstanceId: 'w', deadlineInMs: 1 },
      ]),
    ).toEqual(NOBODY);
  expect(announcementOf([])).toEqual(NOBODY);
  expect(announcementOf([{ outcome: 'duplicate', uuid: 'a', routeId: null }])).toEqual(NOBODY);
});

/** Functions that do not return outcomes of executions: their answers are for their caller alone. */
const APART = [
  'ff_read_frames',
  'ff_cancel_flow',
  'ff_cancel_members',
  'ff_cancel_siblings',
  'ff_deliver_signal',
  'ff_forget',
  'ff_set_tags',
  'ff_settle_family',
];

/** Other words in what the functions return: states, verbs, and keys of JSON. */
const NO_OUTCOMES = new Set(
  `active eligible_now interrupted none runnable success terminal
   append complete continue fail lease_ pause record release renew reply spawn suspend
   accepted name route sleep
   engine parent_ended parent_replayed`.split(/\s+/),
);

it('the table has every outcome that the SQL functions return', () => {
  const folder = new URL('../../../sql/functions/', import.meta.url);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.sql'),
  );
  const functions = files.flatMap((file) =>
    readFileSync(new URL(file, folder), 'utf8')
      .split(/^CREATE OR REPLACE FUNCTION /m)
      .slice(1),
  );
  const answering = functions.filter(
    (text) =>
      /RETURNS TABLE \([^)]*\boutcome text/.test(text) && !APART.includes(/^\w+/.exec(text)?.[0] ?? ''),
  );
  const returned = answering.flatMap((text) => text.match(/RETURN QUERY[^;]*;/g) ?? []);
  const words = returned.flatMap((text) => Array.from(text.matchAll(/'([a-z_]+)'/g), ([, word]) => word!));
  expect(words.length).toBeGreaterThan(50);
  expect(words.filter((word) => !NO_OUTCOMES.has(word) && !(word in MEANINGS))).toEqual([]);
});

it('answers of one call become one hint', () => {
  expect(
    hintOf(
      { outcome: 'submitted', uuid: 'a', routeId: 7 },
      { outcome: 'unblocked', uuid: 'b', routeId: 7 },
      { outcome: 'released', uuid: 'c', routeId: 8 },
      { outcome: 'completed', uuid: 'd', routeId: 9, dueInMs: 40 },
      { outcome: 'retry_scheduled', uuid: 'e', dueInMs: 30 },
      { outcome: 'member_cancelled', uuid: 'f', workerInstanceId: 'w' },
      { outcome: 'member_cancelled', uuid: 'g', workerInstanceId: 'w' },
    ),
  ).toEqual({
    routes: [7, 8],
    count: 3,
    dueInMs: 30,
    ended: ['d', 'f', 'g'],
    streams: ['c', 'e'],
    workers: ['w'],
  });
});

it('routes may be opened as a whole', () => {
  expect(hintOf({ outcome: 'opened', routes: [7, 8], count: 5 })).toEqual({ routes: [7, 8], count: 5 });
  expect(
    hintOf({ outcome: 'opened', routes: 'all', count: 0 }, { outcome: 'submitted', routeId: 7 }).routes,
  ).toBe('all');
});

it('rings once, and only if there is something to say', () => {
  const ring = vi.fn<(hint: Hint) => void>();
  const stir = vi.fn<() => void>();
  const context = { doorbell: { ring }, flowWork: { stir } } as never;
  announce(context, [{ outcome: 'not_found' }]);
  expect([ring.mock.calls.length, stir.mock.calls.length]).toEqual([0, 0]);
  announce(context, [{ outcome: 'more' }, { outcome: 'completed', uuid: 'a' }]);
  expect([ring.mock.calls.length, stir.mock.calls.length]).toEqual([1, 1]);
});
