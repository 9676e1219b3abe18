/**
 * What tests of code built on the engine need: a throw-away database with a movable clock and assertions, every order
 * of a race, and a connection that breaks on command. Lists only the public names.
 */

export { installAssertions } from './assertions.ts';
export { startFaultProxy } from './fault-proxy.ts';
export type { FaultProxy } from './fault-proxy.ts';
export { MAX_PERMUTATIONS, RaceFailure, runRace, stepValue, tablesWaitedOn } from './stepper.ts';
export type {
  Interleaving,
  LockWait,
  QueryAnswer,
  RaceSpec,
  Step,
  StepLike,
  StepResult,
  StepSession,
} from './stepper.ts';
export { createTestDatabase } from './test-database.ts';
export type { TestDatabase, TestDatabaseOptions } from './test-database.ts';
