/**
 * The embedded Postgres: a real server for development and tests, started from packaged or system binaries and shared
 * by every process that uses the same data directory. Lists only the public names.
 */

export { availableBinaries } from './binaries.ts';
export { startEmbedded } from './start.ts';
export type { EmbeddedOptions, EmbeddedServer } from './start.ts';
