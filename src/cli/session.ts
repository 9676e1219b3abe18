/**
 * What every command receives: where to print, which database, and when to stop. Opens the engine for the commands that
 * need one, as small as possible: a command takes a moment and reconciles nothing.
 */
import { connect, type ConnectOptions } from '../connect/connect.ts';
import type { Connection } from '../connect/connection.ts';
import { LIMITS } from '../contract/limits.ts';
import { DEFAULT_SCHEMA } from '../engine/database/migrations/migrate.ts';
import { exitCodeOf, UsageError } from './exit-codes.ts';
import { interruption } from './interruption.ts';
import { openPrinter, type Printer } from './printer.ts';

/** The options every command understands. */
export interface GlobalOptions {
  url?: string;
  schema?: string;
  json?: true;
  color?: boolean;
}

export interface Session {
  readonly printer: Printer;
  /** Throws a UsageError when none is configured. */
  databaseUrl(): string;
  /** What tokens are signed with, the first for new keys; empty when not configured. */
  signingSecrets(): string[];
  readonly schema: string;
  /** Aborted on Ctrl-C, SIGTERM or a closed pipe. */
  readonly interrupted: AbortSignal;
}

/** Does its work and returns the exit code. */
type CommandWork = (session: Session) => Promise<number>;

/** After an interruption a command may print and close its connections for this long. */
const LAST_WORD_MS = 500;
/** Commands make a few calls, one after the other. */
const POOL_SIZE = 2;

export function printerFor(globals: GlobalOptions): Printer {
  return openPrinter({ format: globals.json ? 'json' : 'text', env: environmentFor(globals) });
}

/** The environment, with --no-color written where colours are decided. */
export function environmentFor(globals: GlobalOptions): NodeJS.ProcessEnv {
  return globals.color === false ? { ...process.env, NO_COLOR: '1' } : process.env;
}

/** An empty variable counts as unset. What is no URL of Postgres is refused here, where it is known who gave it. */
export function databaseUrlOf(globals: GlobalOptions): string | undefined {
  const url = globals.url ?? (process.env['DATABASE_URL'] || undefined);
  if (url === undefined || /^(postgres|postgresql|socket):/.test(url)) return url;
  throw new UsageError(`${globals.url === undefined ? 'DATABASE_URL' : '--url'} must be a postgres:// URL.`);
}

/** Holds what tokens are signed with; several secrets, separated by commas, while the secret is being changed. */
const SECRETS_VARIABLE = 'FLOWFABRIC_SIGNING_SECRET';

/** Not an option: options are visible in process lists. An invalid secret is reported without quoting it. */
function signingSecrets(): string[] {
  const text = process.env[SECRETS_VARIABLE] ?? '';
  const secrets = text === '' ? [] : text.split(',');
  if (secrets.length > LIMITS.signingSecrets)
    throw new UsageError(`${SECRETS_VARIABLE} may have at most ${LIMITS.signingSecrets} secrets.`);
  const short = secrets.findIndex((secret) => Buffer.byteLength(secret) < LIMITS.signingSecretBytesMin);
  if (short < 0) return secrets;
  throw new UsageError(
    `${SECRETS_VARIABLE}: secret ${short + 1} of ${secrets.length} has less than ${LIMITS.signingSecretBytesMin} bytes; create one with openssl rand -hex 32.`,
  );
}

/** Runs a command until it finishes or is interrupted. Errors are printed, never thrown. */
export async function runCommand(globals: GlobalOptions, work: CommandWork): Promise<number> {
  const printer = printerFor(globals);
  const stop = interruption();
  stop.interrupted.addEventListener('abort', () => {
    setTimeout(() => process.exit(stop.exitCode()), LAST_WORD_MS).unref();
  });
  try {
    return await work({
      printer,
      schema: globals.schema ?? DEFAULT_SCHEMA,
      interrupted: stop.interrupted,
      signingSecrets,
      databaseUrl() {
        const url = databaseUrlOf(globals);
        if (url !== undefined) return url;
        throw new UsageError('Which database? Give --url or set DATABASE_URL.');
      },
    });
  } catch (error) {
    if (stop.interrupted.aborted) return stop.exitCode();
    printer.error(error);
    return exitCodeOf(error);
  } finally {
    stop.dispose();
  }
}

/** Opens an engine for the work and always closes it. Without `signingSecret` it cannot read or issue tokens. */
export async function withEngine<Value>(
  session: Session,
  options: Pick<ConnectOptions, 'listen' | 'signingSecret'>,
  work: (engine: Connection) => Promise<Value>,
): Promise<Value> {
  const engine = await connect({
    databaseUrl: session.databaseUrl(),
    schema: session.schema,
    reconcile: 'off',
    poolSize: POOL_SIZE,
    ...options,
  });
  try {
    return await work(engine);
  } finally {
    await engine.close();
  }
}
