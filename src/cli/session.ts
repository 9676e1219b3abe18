/**
 * What every command is given: where to print, which database, and when to stop. Opens the engine for the commands
 * that need one, as small as it goes: a command is over in a moment and repairs nothing.
 */
import { connect, type Connection, type ConnectOptions } from '../connect/connect.ts';
import { LIMITS } from '../contract/limits.ts';
import { DEFAULT_SCHEMA } from '../engine/database/migrate.ts';
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
  /** Throws a UsageError when nobody said which. */
  databaseUrl(): string;
  /** What tokens are signed with, the first for new keys; none when nobody said. */
  signingSecrets(): string[];
  readonly schema: string;
  /** Fires when the person has had enough. */
  readonly signal: AbortSignal;
}

/** Does its work and answers the exit code. */
export type CommandWork = (session: Session) => Promise<number>;

/** After an interruption a command may say a last word and close its connections for this long. */
const LAST_WORD_MS = 500;
/** A few calls, one after the other. */
const POOL_SIZE = 2;

export function printerFor(globals: GlobalOptions): Printer {
  return openPrinter({ format: globals.json ? 'json' : 'text', env: environmentFor(globals) });
}

/** The environment, with --no-color written where colours are decided. */
export function environmentFor(globals: GlobalOptions): NodeJS.ProcessEnv {
  return globals.color === false ? { ...process.env, NO_COLOR: '1' } : process.env;
}

/** An empty variable is one somebody meant to unset. */
export function databaseUrlOf(globals: GlobalOptions): string | undefined {
  return globals.url ?? (process.env['DATABASE_URL'] || undefined);
}

/** The variable with what tokens are signed with; more than one, separated by commas, while it is being changed. */
const SECRETS_VARIABLE = 'FLOWFABRIC_SIGNING_SECRET';

/** No option: those are seen in process lists. What is wrong with one is said without quoting it. */
function signingSecrets(): string[] {
  const text = process.env[SECRETS_VARIABLE] ?? '';
  const secrets = text === '' ? [] : text.split(',');
  if (secrets.length > LIMITS.signingSecrets)
    throw new UsageError(`${SECRETS_VARIABLE} may have at most ${LIMITS.signingSecrets} secrets.`);
  const short = secrets.findIndex((secret) => Buffer.byteLength(secret) < LIMITS.signingSecretBytesMin);
  if (short < 0) return secrets;
  throw new UsageError(
    `${SECRETS_VARIABLE}: secret ${short + 1} of ${secrets.length} has less than ${LIMITS.signingSecretBytesMin} bytes; make one with openssl rand -hex 32.`,
  );
}

/** Runs a command to its end or to its interruption; errors are explained, never thrown. */
export async function runCommand(globals: GlobalOptions, work: CommandWork): Promise<number> {
  const printer = printerFor(globals);
  const stop = interruption();
  stop.signal.addEventListener('abort', () => {
    setTimeout(() => process.exit(stop.exitCode()), LAST_WORD_MS).unref();
  });
  try {
    return await work({
      printer,
      schema: globals.schema ?? DEFAULT_SCHEMA,
      signal: stop.signal,
      signingSecrets,
      databaseUrl() {
        const url = databaseUrlOf(globals);
        if (url !== undefined) return url;
        throw new UsageError('Which database? Give --url or set DATABASE_URL.');
      },
    });
  } catch (error) {
    if (stop.signal.aborted) return stop.exitCode();
    printer.error(error);
    return exitCodeOf(error);
  } finally {
    stop.dispose();
  }
}

/** Work on an engine that is closed afterwards, whatever happens. Without `signingSecret` it knows no tokens. */
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
