/**
 * Which tests run when. The fast lane is what a contributor runs before every change (`npm test`); the rest is what CI runs besides
 * (`npm run test:rest`). A file belongs to exactly one lane: that of the longest entry its path begins with, so that a folder may be
 * fast and one of its files not. tests/lanes.test.ts holds every test file against this table and against what vitest finds.
 */

export type Lane = 'fast' | 'rest';

export const LANES: Readonly<Record<string, Lane>> = {
  src: 'fast',
  'tests/adapters': 'rest',
  'tests/budgets': 'fast',
  // It watches an idle worker for eight seconds.
  'tests/budgets/idle.test.ts': 'rest',
  'tests/chaos': 'rest',
  'tests/cli': 'fast',
  'tests/cli/demo.test.ts': 'rest',
  'tests/cli/doctor.test.ts': 'rest',
  'tests/conformance': 'fast',
  'tests/embedded': 'rest',
  'tests/engine': 'fast',
  'tests/lanes.test.ts': 'fast',
  'tests/package': 'rest',
  'tests/plans': 'rest',
  // The races of the fast lane are a sample: some of every capability, each of them in every order.
  'tests/races': 'fast',
  'tests/races/executions/batches.test.ts': 'rest',
  'tests/races/executions/expiry.test.ts': 'rest',
  'tests/races/executions/leased.test.ts': 'rest',
  'tests/races/executions/open-transaction.test.ts': 'rest',
  'tests/races/executions/route-forgetting.test.ts': 'rest',
  'tests/races/families/families.test.ts': 'rest',
  'tests/races/feed/feed.test.ts': 'rest',
  'tests/races/feed/retention.test.ts': 'rest',
  'tests/races/flows/growing.test.ts': 'rest',
  'tests/races/flows/joins.test.ts': 'rest',
  'tests/races/flows/losers.test.ts': 'rest',
  'tests/races/flows/replay.test.ts': 'rest',
  'tests/races/operator/replay.test.ts': 'rest',
  'tests/races/signals/suspension-timeout.test.ts': 'rest',
  'tests/races/steps/pausing.test.ts': 'rest',
  'tests/scripts': 'fast',
  'tests/tasks': 'fast',
  // Handlers are killed until they have all finished.
  'tests/tasks/forward-output.test.ts': 'rest',
  // Every read and command, for each way to redact.
  'tests/tasks/redaction.test.ts': 'rest',
  'tests/testing': 'fast',
  'tests/tidy.test.ts': 'fast',
  'tests/upkeep': 'fast',
  'tests/worker': 'fast',
};

/** Tests that need no Postgres: they run in a project of their own, without starting one. */
const WITHOUT_DATABASE = ['src', 'tests/tidy.test.ts', 'tests/lanes.test.ts', 'tests/scripts'];

const lies = (path: string, entry: string): boolean => path === entry || path.startsWith(`${entry}/`);

/** Undefined for a file that nobody has given a lane. */
export function laneOf(path: string): Lane | undefined {
  const entries = Object.keys(LANES).filter((entry) => lies(path, entry));
  const [longest] = entries.toSorted((a, b) => b.length - a.length);
  return longest === undefined ? undefined : LANES[longest];
}

const asPattern = (entry: string): string => (entry.endsWith('.test.ts') ? entry : `${entry}/**/*.test.ts`);

export interface Patterns {
  include: string[];
  exclude: string[];
}

/** What vitest looks for: the entries of a lane, without those of the other lane inside them. No lane means both. */
export function patternsOf(lane: Lane | undefined, project: 'unit' | 'database'): Patterns {
  const isPure = (entry: string) => WITHOUT_DATABASE.some((pure) => lies(entry, pure));
  const entries = Object.keys(LANES).filter((entry) => isPure(entry) === (project === 'unit'));
  const own = entries.filter((entry) => lane === undefined || LANES[entry] === lane);
  const others = entries.filter((entry) => !own.includes(entry) && own.some((outer) => lies(entry, outer)));
  return { include: own.map(asPattern), exclude: others.map(asPattern) };
}

/** Which lane this run is of; undefined for a run of everything. */
export function laneAsked(): Lane | undefined {
  const lane = process.env['FLOWFABRIC_TEST_LANE'];
  if (lane === undefined || lane === 'fast' || lane === 'rest') return lane;
  throw new Error('FLOWFABRIC_TEST_LANE is fast or rest; without it every test runs.');
}
