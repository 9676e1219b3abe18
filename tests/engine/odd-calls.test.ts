/**
 * Whatever arguments a verb of a connection gets, it returns or throws an EngineError with a known code: valid calls
 * with odd values at a seeded random position. The triggers of the test database check that whatever was accepted is
 * legal.
 */
import { beforeAll, expect, it } from 'vitest';
import { ERROR_CODES } from '../../src/contract/errors.ts';
import { isEngineError, type Connection } from '../../src/index.ts';
import { useBench } from '../conformance/open.ts';
import { callsOf, ODD, ThrownByValue, verbsOf, type OddCall } from './odd-calls.ts';

const SEED = Number(process.env['FLOWFABRIC_TEST_SEED'] ?? 20_261);
const ROUNDS = Number(process.env['FLOWFABRIC_TEST_ROUNDS'] ?? 40);
const NEVER_FUZZED = [
  'close',
  'events.consume',
  'execution',
  'flow',
  'flows.wait',
  'signingKeys.list',
  'submitFlow',
  'upkeep.reports',
  'upkeep.serverTimeMs',
  'worker.transact',
  'workers.list',
];

const bench = useBench();
let calls: readonly OddCall[];

beforeAll(async () => {
  const ended = await bench.running();
  await bench.port.complete(ended);
  calls = callsOf(await bench.running(), ended.executionId);
});

/** A small generator of numbers below 1, the same for the same seed. */
function numbersOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

/** The call with one value replaced, at any depth. */
function replaced(value: unknown, next: () => number, odd: unknown): unknown {
  const isOpen = typeof value === 'object' && value !== null && next() < 0.75;
  const keys = isOpen ? Object.keys(value) : [];
  if (keys.length === 0) return odd;
  const key = keys[Math.floor(next() * keys.length)]!;
  const within = replaced((value as Record<string, unknown>)[key], next, odd);
  if (Array.isArray(value))
    return value.map((member: unknown, index) => (String(index) === key ? within : member));
  return { ...(value as object), [key]: within };
}

/** Reads the first item of an iterable result, and releases everything. */
async function use(engine: Connection, [verb, ...args]: OddCall): Promise<void> {
  const answer = await verbsOf(engine).get(verb)!(...args);
  if (typeof answer === 'function') answer();
  if (typeof answer !== 'object' || answer === null || !(Symbol.asyncIterator in answer)) return;
  const items = (answer as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  // Some would wait for more: they are returned from while they read.
  await Promise.all([items.next(), items.return?.()]);
}

/** What is wrong with how a call was refused; undefined when nothing is. */
async function faultOf(call: OddCall): Promise<string | undefined> {
  const thrown: unknown = await use(bench.engine, call).then(
    () => undefined,
    (error: unknown) => error ?? 'nothing was thrown, and yet it was',
  );
  if (thrown === undefined) return undefined;
  if (!isEngineError(thrown)) return `threw ${String((thrown as Error)?.stack ?? thrown)}`;
  if (!(thrown.code in ERROR_CODES)) return `has the code ${thrown.code}`;
  if (!/^\S.*\.$/s.test(thrown.message)) return `says ${thrown.message}`;
  const isBlamedOnValue = thrown.field === 'arguments' && !(thrown.cause instanceof ThrownByValue);
  const isDatabases = thrown.code === 'database_error' || thrown.code === 'invariant_broken';
  return isBlamedOnValue || isDatabases ? `hides ${String((thrown.cause as Error)?.stack)}` : undefined;
}

it('valid calls are accepted, and every verb is among them', async () => {
  for (const call of calls) expect([call[0], await faultOf(call)]).toEqual([call[0], undefined]);
  const called = new Set([...calls.map(([verb]) => verb), ...NEVER_FUZZED]);
  expect([...verbsOf(bench.engine).keys()].toSorted()).toEqual([...called].toSorted());
});

it(`no odd value causes anything but an EngineError: ${ROUNDS} rounds of every call, seed ${SEED}`, async () => {
  const next = numbersOf(SEED);
  const faults: string[] = [];
  let made = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [verb, ...args] of calls) {
      if (args.length === 0) continue;
      const odd = Math.floor(next() * ODD.length);
      const at = Math.floor(next() * args.length);
      const given = args.map((arg, index) => (index === at ? replaced(arg, next, ODD[odd]!()) : arg));
      const fault = await faultOf([verb, ...given]);
      if (fault !== undefined)
        faults.push(`${verb}, round ${round}, ${String(ODD[odd])}: ${fault.slice(0, 600)}`);
      made += 1;
    }
  }
  expect(faults).toEqual([]);
  expect(made).toBe(ROUNDS * calls.filter(({ length }) => length > 1).length);
});
