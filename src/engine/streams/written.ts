/**
 * What an execution has written before its current lease, as far as it counts: a handler that runs again from the top
 * compares its output with that, and folds its patches in between.
 */
import { formatExecutionId } from '../../contract/ids.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import type {
  OutputSource,
  WrittenFrame,
  WrittenOutput,
  WrittenPatch,
  WrittenPatches,
} from '../../contract/streams.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import { leaseKey } from '../kit/answers.ts';
import type { EngineContext } from '../kit/context.ts';
import { readDocument } from './documents.ts';
import {
  readEarlierSteps,
  readOutside,
  readPatchRows,
  type OutsideFrame,
  type PatchRow,
} from './written.sql.ts';

/** Frames in one read. */
const PAGE = 5_000;

export async function readWritten(context: EngineContext, lease: LeaseRef): Promise<WrittenOutput> {
  const key = leaseKey(lease, 'lease');
  const isFirst = key.attemptIndex === 0;
  const [frames, steps, patches] = [
    await outside(context, key),
    isFirst ? [] : await readEarlierSteps(context.database, key),
    await readPatchRows(context.database, key, { limit: LIMITS.refoldedPatches, whole: false }),
  ];
  const ofSteps = patches.filter(({ stepName, kept }) => stepName !== null && !kept);
  return {
    frames,
    steps: steps.map(({ name, key: stepKey }) => ({ name, key: stepKey })),
    patchedBy: distinct(patches.filter(({ kept }) => kept).map((row) => sourceOf(key, row)!)),
    hasLeftovers: ofSteps.some(({ attemptIndex }) => attemptIndex === key.attemptIndex),
  };
}

async function outside(context: EngineContext, key: LeaseKey): Promise<WrittenFrame[]> {
  let frames: OutsideFrame[] = [];
  for (;;) {
    const last = frames.at(-1) ?? { tsMs: 0, seq: 0 };
    const page = await readOutside(context.database, key, last, PAGE);
    frames.push(...page);
    if (page.length < PAGE || frames.length >= LIMITS.comparedFrames) break;
  }
  frames = counting(frames, ({ mode, frameType }) => `${mode} ${frameType}`);
  return frames
    .slice(0, LIMITS.comparedFrames)
    .map(({ tsMs, seq, mode, frameType, digest }) => ({ id: `${tsMs}-${seq}`, mode, frameType, digest }));
}

/** Without those that a later one supersedes. */
function counting<Row extends { seq: number; supersedes: string | null }>(
  rows: readonly Row[],
  nameOf: (row: Row) => string,
): Row[] {
  /** From the end on: by name, the first of those that no longer count. */
  const from = new Map<string, number>();
  const kept = rows.toReversed().filter((row) => {
    const name = nameOf(row);
    const first = from.get(name) ?? Number.POSITIVE_INFINITY;
    // What a superseded one had superseded does not count again.
    if (row.supersedes !== null) from.set(name, Math.min(first, Number(row.supersedes.split('-')[1])));
    return row.seq < first;
  });
  return kept.toReversed();
}

export async function readPatches(context: EngineContext, lease: LeaseRef): Promise<WrittenPatches> {
  const key = leaseKey(lease, 'lease');
  const most = LIMITS.refoldedPatches;
  const rows = await readPatchRows(context.database, key, { limit: most + 1, whole: true });
  const found = await readDocument(context.database, key, key.attemptIndex);
  const document = found === undefined || found.attemptIndex === null ? {} : found.document;
  if (rows.length > most) return { document, patches: null };
  const isOutside = ({ stepName, childId }: PatchRow): boolean => stepName === null && childId === null;
  const own = rows.filter((row) => isOutside(row) && row.attemptIndex === key.attemptIndex);
  const counted = new Set(counting(own, ({ frameType }) => frameType));
  const patches = rows.filter((row) => row.kept || counted.has(row));
  return { document, patches: patches.map((row) => patchOf(key, row)) };
}

function patchOf(key: LeaseKey, row: PatchRow): WrittenPatch {
  const id = `${row.tsMs}-${row.seq}`;
  return { id, source: sourceOf(key, row), patch: JSON.parse(row.patch!) as { [name: string]: Json } };
}

function sourceOf({ partition }: LeaseKey, { stepName, stepKey, childId }: PatchRow): OutputSource | null {
  if (childId !== null) return { child: formatExecutionId(partition, childId) };
  return stepName === null ? null : { step: { name: stepName, key: stepKey! } };
}

function distinct(sources: readonly OutputSource[]): OutputSource[] {
  return [...new Map(sources.map((source) => [JSON.stringify(source), source])).values()];
}
