/**
 * All scenarios, in the order they run. A new one is a file beside this and a line here.
 */
import { bulkSubmit } from './bulk-submit.mjs';
import { describe } from './describe.mjs';
import { drain } from './drain.mjs';
import { feed, feedCatchUp, feedLatency } from './feed.mjs';
import { flowAny, flowChain, flowChainAlone, flowJoin, flowJoinRate } from './flow.mjs';
import { idle } from './idle.mjs';
import { kept } from './kept.mjs';
import { latency } from './latency.mjs';
import { pgbenchCeiling } from './pgbench-ceiling.mjs';
import { retained } from './retained.mjs';
import { signal, signalRate } from './signal.mjs';
import { singleSubmits } from './single-submits.mjs';
import { snapshotHeld } from './snapshot-held.mjs';
import { statistics } from './statistics.mjs';
import { steps } from './steps.mjs';
import { streamAppend, streamFollowed, streamTail } from './stream.mjs';
import { unbatched } from './unbatched.mjs';

/** @type {import('../harness/runner.mjs').Scenario[]} */
export const SCENARIOS = [
  bulkSubmit,
  singleSubmits,
  drain,
  unbatched,
  statistics,
  steps,
  latency,
  snapshotHeld,
  retained,
  kept,
  feed,
  feedLatency,
  feedCatchUp,
  signal,
  signalRate,
  streamAppend,
  streamTail,
  streamFollowed,
  flowChain,
  flowChainAlone,
  flowJoin,
  flowJoinRate,
  flowAny,
  describe,
  idle,
  pgbenchCeiling,
];
