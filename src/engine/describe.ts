/**
 * One execution, and on request what is inside it. The parts come from several capabilities, each bounded by a limit; what
 * is not asked for is not read.
 */
import {
  DESCRIBE_PARTS,
  type DescribedParts,
  type DescribeOptions,
  type DescribePart,
  type LastOf,
} from '../contract/described.ts';
import type { ExecutionSnapshot } from '../contract/executions.ts';
import { LIMITS } from '../contract/limits.ts';
import type { Redaction } from '../contract/redaction.ts';
import { choice, flag, list as listKind } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';
import { timelineOf } from '../model/timeline.ts';
import { readInput, readSnapshotOf } from './executions/reads.ts';
import { shownAttempt, shownSnapshot } from './executions/redaction.ts';
import type { EngineContext } from './kit/context.ts';
import { listRuns } from './messages/continue.ts';
import { listMessages, shownMessage } from './messages/messages.ts';
import { list, listAttempts } from './operator/lists.ts';
import { listWaitpoints } from './signals/waitpoints.ts';
import { lastSteps } from './steps/steps.ts';

type Read<Part extends DescribePart> = (
  context: EngineContext,
  snapshot: ExecutionSnapshot,
  redaction: Redaction | null,
) => Promise<DescribedParts[Part]>;

const READS: { readonly [Part in DescribePart]: Read<Part> } = {
  input: (context, { executionId }, redaction) => readInput(context, executionId, redaction),
  steps: (context, { executionId }, redaction) => lastSteps(context, executionId, redaction),
  async children(context, { executionId }) {
    const page = { filter: { parentId: executionId }, limit: LIMITS.describedChildren };
    const { executions, cursor } = await list(context, page);
    const items = executions.map(({ kind, state, createdAtMs, executionId: child }) => {
      return { executionId: child, kind, state, createdAtMs };
    });
    return { items: items.toReversed(), truncated: cursor !== null };
  },
  async waits(context, { executionId }) {
    const { waitpoints } = await listWaitpoints(context, { executionId });
    return lastOf(waitpoints, LIMITS.describedWaits);
  },
  async messages(context, { executionId }, redaction) {
    const { items, truncated } = await listMessages(context, executionId);
    return { items: items.map((message) => shownMessage(message, redaction)), truncated };
  },
  runs: (context, { executionId }) => listRuns(context, executionId),
  async timeline(context, snapshot, redaction) {
    const page = { limit: LIMITS.describedAttempts, reveal: true };
    const { attempts, before } = await listAttempts(context, snapshot.executionId, page);
    const shown = attempts.toReversed().map((attempt) => shownAttempt(attempt, redaction));
    return { items: timelineOf(snapshot, shown), truncated: before !== null };
  },
};

const describeOptions = shape<DescribeOptions>({
  include: listKind(choice(DESCRIBE_PARTS), DESCRIBE_PARTS.length).optional(),
  reveal: flag.optional(),
});

/** Only the types of the contract can tell, by the options, which parts are there. */
export async function describe(
  context: EngineContext,
  executionId: string,
  options: DescribeOptions = {},
): Promise<never> {
  const { include = [], reveal = false } = describeOptions.check(options, 'options');
  const found = await readSnapshotOf(context, executionId);
  if (found === null) return null as never;
  const redaction = reveal ? null : found.redaction;
  const snapshot = shownSnapshot(found.snapshot, redaction);
  if (include.length === 0) return snapshot as never;
  const parts = await Promise.all(
    include.map(async (part) => [part, await READS[part](context, snapshot, redaction)] as const),
  );
  return { ...snapshot, ...Object.fromEntries(parts) } as never;
}

function lastOf<Item>(items: readonly Item[], most: number): LastOf<Item> {
  return { items: items.slice(-most), truncated: items.length > most };
}
