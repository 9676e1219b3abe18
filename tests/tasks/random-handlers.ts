/**
 * Random handlers made of everything a handler can await: steps, transactions, sleeps, signals and children, in nested
 * sequences, races and alls. Each race records its winner in a step, so that a run that takes another branch than the
 * first contradicts what is stored. The same seed makes the same handler.
 */
import type { AnyTask } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { chance } from '../setup/chance.ts';

export type Leaf = 'step' | 'tx' | 'sleep' | 'pause' | 'wait' | 'child' | 'caught' | 'throw';

export type Part =
  | { kind: Leaf; name: string; ms: number; hops: number }
  | { kind: 'sequence' | 'all'; name: string; of: Part[] }
  | { kind: 'race'; name: string; of: Part[]; after: Part[] };

const LEAVES: readonly Leaf[] = ['step', 'step', 'tx', 'sleep', 'sleep', 'wait', 'wait', 'child', 'caught'];
const MAX_MS = 12;
const MAX_HOPS = 6;
/** Long enough to free the worker. */
const PAUSE_MS = 300;

/** At least two consecutive races, followed by something that makes the handler run again. */
export function randomHandler(seed: number): Part {
  const next = chance(seed);
  let names = 0;
  const below = (limit: number): number => Math.floor(next() * limit);
  const leaf = (kind: Leaf): Part => {
    names += 1;
    return { kind, name: `${kind} ${names}`, ms: below(MAX_MS), hops: below(MAX_HOPS) };
  };
  const part = (depth: number): Part => {
    const draw = next();
    if (depth === 0 || draw < 0.5) return leaf(LEAVES[below(LEAVES.length)]!);
    names += 1;
    const name = `${names}`;
    const of = Array.from({ length: 2 + below(2) }, () => part(depth - 1));
    if (draw < 0.7) return { kind: 'sequence', name, of };
    if (draw < 0.8) return { kind: 'all', name, of };
    return race(name, of);
  };
  const race = (name: string, of: Part[]): Part => ({
    kind: 'race',
    name,
    of,
    after: of.map(() => leaf(LEAVES[below(LEAVES.length)]!)),
  });
  const again = (): Part => leaf(next() < 0.5 ? 'pause' : 'throw');
  const rounds = Array.from({ length: 2 + below(2) }, (_, round) => [
    race(`race ${round}`, [part(2), part(2), part(1)]),
    again(),
  ]);
  return { kind: 'sequence', name: 'whole', of: rounds.flat() };
}

export interface Surroundings {
  child: AnyTask;
  /** Requests that a signal is sent. */
  wanted(ctx: TaskContext, waitpoint: string): void;
  /** True on the first call. */
  isFirst(ctx: TaskContext, name: string): boolean;
  /** A run took a different branch than the stored one. */
  onContradiction(ctx: TaskContext, race: string, stored: unknown, taken: unknown): void;
}

export async function perform(part: Part, ctx: TaskContext, around: Surroundings): Promise<unknown> {
  switch (part.kind) {
    case 'sequence':
      for (const each of part.of) await perform(each, ctx, around);
      return part.name;
    case 'all':
      return Promise.all(part.of.map((each) => perform(each, ctx, around)));
    case 'race':
      return performRace(part, ctx, around);
    default:
      await hopping(part.hops);
      await performLeaf(part, ctx, around);
      await hopping(part.hops);
      return part.name;
  }
}

/** Waits for this many microtasks. */
async function hopping(hops: number): Promise<void> {
  for (let hop = 0; hop < hops; hop += 1) await Promise.resolve();
}

async function performRace(
  part: Part & { kind: 'race' },
  ctx: TaskContext,
  around: Surroundings,
): Promise<string> {
  const winner = await Promise.race(
    part.of.map(async (each, index) => {
      await perform(each, ctx, around);
      return index;
    }),
  );
  const stored = await ctx.step(`won ${part.name}`, () => winner);
  if (stored !== winner) around.onContradiction(ctx, part.name, stored, winner);
  await perform(part.after[winner]!, ctx, around);
  return part.name;
}

async function performLeaf(
  { kind, name, ms }: Part & { kind: Leaf },
  ctx: TaskContext,
  around: Surroundings,
): Promise<void> {
  switch (kind) {
    case 'step':
      await ctx.step(name, () => turns(ms));
      return;
    case 'tx':
      await ctx.tx(name, async (tx) => (await tx.query('SELECT 1')).rowCount);
      return;
    case 'sleep':
      return ctx.sleep(name, { milliseconds: ms });
    case 'pause':
      return ctx.sleep(name, { milliseconds: PAUSE_MS });
    case 'wait':
      around.wanted(ctx, name);
      await ctx.waitFor(name);
      return;
    case 'child':
      await (await ctx.spawn(around.child, ms, { key: name })).result();
      return;
    case 'caught':
      await ctx.step(name, () => failing(name, ms)).catch(() => null);
      return;
    case 'throw':
      if (around.isFirst(ctx, name)) throw new Error(`${name}: the next attempt goes on`);
  }
}

async function failing(name: string, ms: number): Promise<never> {
  await turns(ms);
  throw new Error(name);
}

/** Waits for this many turns of the event loop. */
export async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
