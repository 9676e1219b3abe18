/**
 * `flowfabric token`: makes a token for a waitpoint, or a link with one, and prints it alone, so that it can be piped to whoever
 * is to answer. It is stored nowhere.
 */
import type { Command } from 'commander';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { TokenRequest } from '../../contract/signals.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseDuration, readInput } from '../input.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { asOption, parseSource } from './signal.ts';

export interface TokenOptions {
  for?: string;
  expires?: string;
  once?: true;
  says?: string;
  payload?: string;
  link?: string;
  revoke?: true;
}

export function describeToken(command: Command): Command {
  return command
    .summary('make a token, or a link, for somebody who is to answer')
    .description(
      'Print a token for a waitpoint, or with --link a link. Who has it may answer: hand it over with care.\n' +
        'Needs the variable FLOWFABRIC_SIGNING_SECRET.',
    )
    .argument('<id>', 'its id, {fp:N}:uuid; mind the quotes')
    .argument('<waitpoint>', 'where it waits')
    .option('--for <type:identity>', 'who it is for: what is said with it is said by them')
    .option('--expires <duration>', 'how long it is good (default: 7d)')
    .option('--once', 'good for one signal')
    .option('--says <name>', 'nothing but this can be said with it')
    .option('--payload <json>', 'with --says: and this; JSON, @file, or - for stdin')
    .option('--link <url>', 'make a link of it, to this address')
    .option('--revoke', 'make none: end all tokens of the waitpoint that are out');
}

export async function tokenCommand(
  id: string,
  waitpoint: string,
  options: TokenOptions,
  session: Session,
): Promise<number> {
  parseExecutionId(id, 'id');
  if (options.revoke) return revokeTokens(id, waitpoint, options, session);
  const request = await readRequest(options);
  const signingSecret = session.signingSecrets();
  const issued = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.issueToken(id, waitpoint, request),
  ).catch((error: unknown) => {
    throw asOption(error, '--for');
  });
  session.printer.result(issued, [[[issued.link ?? issued.token]]]);
  return EXIT.ok;
}

async function revokeTokens(
  id: string,
  waitpoint: string,
  options: TokenOptions,
  session: Session,
): Promise<number> {
  const other = Object.keys(options).find((option) => option !== 'revoke');
  if (other !== undefined) throw new UsageError(`--revoke makes no token: leave --${other} out.`);
  await withEngine(session, { listen: 'off' }, (engine) => engine.revokeTokens(id, waitpoint));
  const gone = `tokens of ${printable(waitpoint)} that were out are good no longer`;
  session.printer.result({ executionId: id, waitpoint, outcome: 'revoked' }, [[[gone, 'good']]]);
  return EXIT.ok;
}

async function readRequest(options: TokenOptions): Promise<TokenRequest> {
  const { expires, once, says, payload, link } = options;
  if (payload !== undefined && says === undefined) throw new UsageError('--payload needs --says.');
  const more = payload === undefined ? {} : { payload: await readInput(payload, '--payload') };
  return {
    ...(options.for === undefined ? {} : { source: parseSource(options.for, '--for') }),
    ...(expires === undefined ? {} : { expiresInMs: parseDuration(expires, '--expires', LIMITS.tokenMs) }),
    ...(says === undefined ? {} : { signal: { name: says, ...more } }),
    ...(once ? { use: 'once' as const } : {}),
    ...(link === undefined ? {} : { linkTo: link }),
  };
}
