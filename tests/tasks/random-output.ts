/**
 * Random handlers that write: frames and patches, outside of steps and in them, in sequences and in parallel branches,
 * with pauses and failures in between. What a branch writes is in its own order, and patches contradict each other on
 * purpose, so that anything applied twice, late or not at all is seen. The same seed makes the same handler.
 */
import type { TaskContext } from '../../src/define/task-context.ts';
import { chance } from '../setup/chance.ts';
import { turns } from './random-handlers.ts';

type Leaf = 'write' | 'patch' | 'step' | 'caught' | 'pause' | 'throw';

interface Writing {
  kind: Leaf;
  name: string;
  branch: string;
  values: number[];
  ms: number;
}

export type Output = Writing | { kind: 'sequence' | 'all'; of: Output[] };

const LEAVES: readonly Leaf[] = ['write', 'write', 'patch', 'patch', 'step', 'step', 'step', 'caught'];
/** Long enough to free the worker. */
const PAUSE_MS = 300;
const KEYS = ['done', 'a', 'b', 'c'];

export interface RandomOutput {
  whole: Output;
  /** Whether it writes in parallel branches and in steps. */
  isBroad: boolean;
}

export function randomOutput(seed: number): RandomOutput {
  const next = chance(seed);
  const below = (limit: number): number => Math.floor(next() * limit);
  let names = 0;
  let branches = 0;
  const leaf = (kind: Leaf, branch: string): Output => {
    names += 1;
    const values = Array.from({ length: 1 + below(3) }, () => below(1_000));
    return { kind, name: `${kind} ${names}`, branch, values, ms: below(6) };
  };
  const sequence = (branch: string, length: number, depth: number): Output => ({
    kind: 'sequence',
    of: Array.from({ length }, () => {
      if (depth > 0 && next() < 0.25) return all(depth - 1);
      return leaf(LEAVES[below(LEAVES.length)]!, branch);
    }),
  });
  const all = (depth: number): Output => ({
    kind: 'all',
    of: Array.from({ length: 2 + below(2) }, () =>
      sequence(`branch ${(branches += 1)}`, 2 + below(3), depth),
    ),
  });
  const rounds = Array.from({ length: 2 + below(2) }, () => [
    sequence('main', 2 + below(3), 2),
    leaf(next() < 0.5 ? 'pause' : 'throw', 'main'),
  ]);
  const whole: Output = {
    kind: 'sequence',
    of: [...rounds.flat(), leaf('patch', 'main'), leaf('write', 'main'), leaf('step', 'main')],
  };
  return { whole, isBroad: branches > 0 };
}

/** What happens around a write; nothing in an undisturbed run. */
export interface Disturbance {
  /** Between two writes of a run. */
  between(ctx: TaskContext): Promise<void>;
  /** Whether the run pauses here. */
  pauses: boolean;
  /** Whether it fails here, this time. */
  fails(ctx: TaskContext, name: string): boolean;
}

export async function writeOutput(part: Output, ctx: TaskContext, around: Disturbance): Promise<void> {
  if (!('of' in part)) return writeLeaf(part, ctx, around);
  if (part.kind === 'sequence') for (const each of part.of) await writeOutput(each, ctx, around);
  else await Promise.all(part.of.map((each) => writeOutput(each, ctx, around)));
}

async function writeLeaf(part: Writing, ctx: TaskContext, around: Disturbance): Promise<void> {
  const { kind, name, branch, ms } = part;
  switch (kind) {
    case 'write':
      return writeFrames(part, ctx, around, branch);
    case 'patch':
      return writePatches(part, ctx, around);
    case 'step':
      await ctx.step(name, async () => {
        await writeFrames(part, ctx, around, branch);
        await turns(ms);
        await writePatches(part, ctx, around);
        return null;
      });
      return;
    case 'caught': {
      const failing = async (): Promise<never> => {
        await writeFrames(part, ctx, around, `failed ${branch}`);
        await writePatches(part, ctx, around, 'failed');
        throw new Error(name);
      };
      await ctx.step(name, failing).catch((error: Error) => {
        if (error.message !== name) throw error;
      });
      return;
    }
    case 'pause':
      if (around.pauses) await ctx.sleep(name, PAUSE_MS);
      return;
    case 'throw':
      if (around.fails(ctx, name)) throw new Error(`${name}: the next attempt goes on`);
  }
}

/** To the stream of the branch, whose order is its own, and to one that all branches share. */
async function writeFrames(
  { name, values, ms }: Writing,
  ctx: TaskContext,
  around: Disturbance,
  type: string,
): Promise<void> {
  for (const [index, value] of values.entries()) {
    await ctx.stream.write(`${name}: ${value}`, { type });
    await around.between(ctx);
    if (index === 0) await ctx.stream.write(name, { type: 'shared' });
    await turns(ms);
  }
}

/** Keys are set, set again, and removed. */
async function writePatches(
  { name, branch, values }: Writing,
  ctx: TaskContext,
  around: Disturbance,
  under = 'all',
): Promise<void> {
  for (const value of values) {
    const key = KEYS[value % KEYS.length]!;
    const inner =
      value % 7 === 0 ? null : { at: name, [key]: value, ...(value % 3 === 0 ? { b: null } : {}) };
    await ctx.stream.patch({ [branch]: { [under]: { [key]: value % 5 === 0 ? null : value, inner } } });
    await around.between(ctx);
  }
}
