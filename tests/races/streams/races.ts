/**
 * Streams for the races, and the races that simpler ways to append are known to lose: stream.test.ts runs them on the
 * engine's function and on naive variants.
 */
import { expect } from 'vitest';
import type { Interleaving, StepLike } from '../../../src/testing/stepper.ts';
import { isBefore, leased, meet, saidTo, transaction, type Arena, type Scene } from '../arena.ts';
import { ask, type Ask, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { inTurn } from '../signals/races.ts';
import { framesAfter, streamFaults, type Frame, type FramesTo } from './calls.ts';

type Given = (arena: Arena) => Promise<Scene>;

/** Running, with one frame written. */
export function written(frames: FramesTo = {}): Given {
  return async (arena) => {
    const scene = await leased(1)(arena);
    const first = arena.calls.append(scene.leases[0]!, { frames: [['durable', 'first']], ...frames });
    expect(await ask(arena.through, first)).toMatchObject([{ word: 'appended' }]);
    return { ...scene, logged: await endOfLog(arena.through) };
  };
}

export const append =
  (arena: Arena, request: FramesTo = {}) =>
  ({ leases }: Scene): Call =>
    arena.calls.append(leases[0]!, request);

export async function expectSound(arena: Arena, { ids }: Scene): Promise<void> {
  expect(await streamFaults(arena.through, ids), 'faults of streams').toEqual([]);
}

export async function payloadsOf(arena: Arena, { ids }: Scene): Promise<string[]> {
  return (await framesAfter(arena.through, ids[0]!)).map(({ payload }) => payload);
}

/** Resumes after the last frame it has seen, as a tail does. */
async function read(through: Ask, scene: Scene): Promise<void> {
  const seen = (scene['seen'] ??= []) as Frame[];
  const last = seen.at(-1);
  seen.push(...(await framesAfter(through, scene.ids[0]!, last?.ts, last?.seq)));
}

function following(name: string): StepLike<Scene> {
  return { name, run: (session, scene) => read(session.query, scene) };
}

/** Whichever commits first is read before the other one commits, however they began. */
const ORDERS = [
  ['a.call', 'b.call', 'b.COMMIT', 'reader.one', 'a.COMMIT', 'reader.two'],
  ['a.call', 'b.call', 'a.COMMIT', 'reader.one', 'b.COMMIT', 'reader.two'],
  ['b.call', 'a.call', 'a.COMMIT', 'reader.one', 'b.COMMIT', 'reader.two'],
  ['b.call', 'a.call', 'b.COMMIT', 'reader.one', 'a.COMMIT', 'reader.two'],
  ['a.call', 'a.COMMIT', 'reader.one', 'b.call', 'reader.two', 'b.COMMIT'],
  ['b.call', 'b.COMMIT', 'reader.one', 'a.call', 'reader.two', 'a.COMMIT'],
];

/** Two writers and one follower, which sees every frame once, in commit order. */
export function followTwo(arena: Arena, skewMs = 0): Promise<Interleaving[]> {
  return arena.race({
    permutations: ORDERS,
    given: written({ skewMs }),
    sessions: {
      a: transaction(append(arena, { frames: [['durable', 'a']], skewMs })),
      b: transaction(append(arena, { frames: [['durable', 'b']], skewMs: -skewMs })),
      reader: [following('one'), following('two')],
    },
    check: async ({ order }, scene) => {
      await read(arena.through, scene);
      const seen = scene['seen'] as Frame[];
      const committed = order.filter((step) => step.endsWith('.COMMIT')).map((step) => step.charAt(0));
      expect(
        seen.map(({ payload }) => payload),
        'what the reader saw',
      ).toEqual(['first', ...committed]);
      await expectSound(arena, scene);
    },
  });
}

/** Written before the close, or refused: never after. */
export function appendAndComplete(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: written(),
    sessions: {
      a: transaction(append(arena, { frames: [['durable', 'late']] })),
      b: transaction(({ leases }) => arena.calls.complete(leases)),
    },
    check: async (outcome, scene) => {
      const isInTime = isBefore(outcome, 'a.call', 'b.call');
      expect(await payloadsOf(arena, scene), 'frames of a closed stream').toEqual([
        'first',
        ...(isInTime ? ['late'] : []),
      ]);
      expect(saidTo(outcome, 'a')).toBe(isInTime ? 'appended' : 'not_active');
      expect(saidTo(outcome, 'b')).toBe('completed');
      await expectSound(arena, scene);
    },
  });
}

/** The same call made twice, because its response was lost, counts once. */
export function appendTwice(arena: Arena): Promise<Interleaving[]> {
  const appendId = '018f0000-0000-7000-8000-00000000abcd';
  const same = append(arena, { frames: [['durable', 'once']], appendId });
  return arena.race({
    given: written(),
    sessions: { a: transaction(same), b: transaction(same) },
    check: async (outcome, scene) => {
      expect(await payloadsOf(arena, scene), 'what is there').toEqual(['first', 'once']);
      expect([saidTo(outcome, 'a'), saidTo(outcome, 'b')]).toEqual(['appended', 'appended']);
      await expectSound(arena, scene);
    },
  });
}

/** Both patches end up in the document. */
export function patchTwice(arena: Arena): Promise<Interleaving[]> {
  return meet(arena, {
    steps: transaction,
    given: written({ frames: [['summary', '{"first": 1}']] }),
    a: append(arena, { frames: [['summary', '{"a": 1}']] }),
    b: append(arena, { frames: [['summary', '{"b": {"c": 1}}']] }),
    expected: inTurn(['appended', 'appended'], ['appended', 'appended'], 'ff_stream_meta'),
    check: async (scene) => {
      const found = await arena.through('SELECT * FROM ff_stream_summary WHERE execution_id = $1', [
        scene.ids[0],
      ]);
      expect(found.rows[0], 'the document').toMatchObject({
        version: 3,
        document_json: { first: 1, a: 1, b: { c: 1 } },
      });
      await expectSound(arena, scene);
    },
  });
}

/** The trim in every place between the others, open and committed. */
const TRIM_ORDERS = [
  ['a.call', 'trim.call', 'b.call', 'a.COMMIT', 'trim.COMMIT', 'b.COMMIT'],
  ['b.call', 'trim.call', 'a.call', 'b.COMMIT', 'trim.COMMIT', 'a.COMMIT'],
  ['trim.call', 'a.call', 'b.call', 'trim.COMMIT', 'a.COMMIT', 'b.COMMIT'],
  ['trim.call', 'b.call', 'a.call', 'trim.COMMIT', 'b.COMMIT', 'a.COMMIT'],
  ['a.call', 'a.COMMIT', 'b.call', 'trim.call', 'b.COMMIT', 'trim.COMMIT'],
  ['a.call', 'a.COMMIT', 'trim.call', 'trim.COMMIT', 'b.call', 'b.COMMIT'],
];

/** Live frames are trimmed while others write: durable frames and the newest live ones stay. */
export function appendAndTrim(arena: Arena): Promise<Interleaving[]> {
  const live = (name: string, count: number): FramesTo => ({
    kept: 2,
    frames: Array.from({ length: count }, (_, n) => ['best_effort', `${name}${n}`]),
  });
  return arena.race({
    permutations: TRIM_ORDERS,
    given: written({ ...live('old', 2), frames: [['durable', 'first'], ...live('old', 2).frames!] }),
    sessions: {
      a: transaction(append(arena, { frames: [['durable', 'kept']] })),
      trim: transaction(append(arena, live('t', 3))),
      b: transaction(append(arena, live('b', 1))),
    },
    check: async ({ order }, scene) => {
      const frames = await framesAfter(arena.through, scene.ids[0]!);
      const of = (mode: string) =>
        frames.filter((frame) => frame.mode === mode).map(({ payload }) => payload);
      expect(of('durable'), 'durable frames').toEqual(['first', 'kept']);
      const later = order.indexOf('b.COMMIT') > order.indexOf('trim.COMMIT');
      expect(of('best_effort'), 'live frames').toEqual(later ? ['t2', 'b0'] : ['t1', 't2']);
      await expectSound(arena, scene);
    },
  });
}
