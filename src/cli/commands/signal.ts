/**
 * `flowfabric signal` says something to a waiting execution by a token, `flowfabric approve` as an operator, without one. Both
 * print what became of it in words. Where things are waited for is listed in approvals.ts.
 */
import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { isEngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { DeliverOutcome, SignalEffect, SignalSource } from '../../contract/signals.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { readInput, readStdin } from '../input.ts';
import type { Span } from '../look.ts';
import { withEngine, type Session } from '../session.ts';

interface SaidOptions {
  name?: string;
  payload?: string;
  key?: string;
}

export interface SignalOptions extends SaidOptions {
  source?: string;
}

export interface ApproveOptions extends SaidOptions {
  by?: string;
}

export function describeSignal(command: Command): Command {
  return command
    .summary('say something to a waiting execution')
    .description(
      'Send a signal by a token. Give - and the token on stdin to keep it out of the shell history and of\n' +
        'process lists. Needs the variable FLOWFABRIC_SIGNING_SECRET.',
    )
    .argument('<token>', 'a token or a link with one; - reads it from stdin')
    .option('--name <name>', 'what is said (default: signal, or what the token says)')
    .option('--payload <json>', 'more about it: JSON, @file, or - for stdin')
    .option('--source <type:identity>', 'who says it; you vouch for that (default: the token itself)')
    .option('--key <key>', 'an idempotency key: a second signal with it is a duplicate');
}

export function describeApprove(command: Command): Command {
  return command
    .summary('answer what an execution waits for, as an operator')
    .description('Send a signal as an operator, without a token. What is waited for: flowfabric approvals.')
    .argument('<id>', 'its id, {fp:N}:uuid; mind the quotes')
    .argument('<waitpoint>', 'where it waits')
    .option('--by <name>', 'who approves; the same name counts once (default: your user name)')
    .option('--name <name>', 'what is said (default: approved)')
    .option('--payload <json>', 'more about it: JSON, @file, or - for stdin')
    .option('--key <key>', 'an idempotency key: a second signal with it is a duplicate');
}

export async function signalCommand(
  given: string,
  options: SignalOptions,
  session: Session,
): Promise<number> {
  if (given === '-' && options.payload === '-')
    throw new UsageError('Either the token or --payload is read from stdin, not both.');
  const { source } = options;
  const token = given === '-' ? (await readStdin('The token')).trim() : given;
  const request = {
    token,
    ...(await saidBy(options)),
    ...(source === undefined ? {} : { source: parseSource(source, '--source') }),
  };
  const signingSecret = session.signingSecrets();
  const answer = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.deliverSignal(request),
  ).catch((error: unknown) => {
    throw asOption(error, '--source');
  });
  return tell(answer, session);
}

export async function approveCommand(
  id: string,
  waitpoint: string,
  options: ApproveOptions,
  session: Session,
): Promise<number> {
  parseExecutionId(id, 'id');
  const request = { by: options.by ?? userName(), ...(await saidBy(options)) };
  const answer = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.approve(id, waitpoint, request),
  ).catch((error: unknown) => {
    throw asOption(error, '--source');
  });
  return tell(answer, session);
}

async function saidBy({ name, payload, key }: SaidOptions) {
  return {
    ...(name === undefined ? {} : { name }),
    ...(payload === undefined ? {} : { payload: await readInput(payload, '--payload') }),
    ...(key === undefined ? {} : { idempotencyKey: key }),
  };
}

/** `service:billing`; a name alone is a user's. */
export function parseSource(text: string, option: string): SignalSource {
  const at = text.indexOf(':');
  const source = { type: text.slice(0, Math.max(at, 0)), identity: text.slice(at + 1) };
  if (source.identity === '' || at === 0)
    throw new UsageError(`${option} must be type:identity, such as user:ada.`);
  return at < 0 ? { identity: text } : source;
}

/** Not everybody who runs a command has an account on the machine. */
function userName(): string {
  try {
    return userInfo().username || 'operator';
  } catch {
    return 'operator';
  }
}

const OPTION_OF: readonly [RegExp, string][] = [
  [/^request\.signal\.payload/, '--payload'],
  [/^request\.signal\.name/, '--says'],
  [/^request\.expiresInMs/, '--expires'],
  [/^request\.linkTo/, '--link'],
  [/^request\.name/, '--name'],
  [/^request\.payload/, '--payload'],
  [/^request\.idempotencyKey/, '--key'],
  [/^request\.by/, '--by'],
];

const SOURCE = /^request\.source(?:\.\w+)?/;

/** A refusal of the engine in the words of the command line; anything else as it is. */
export function asOption(error: unknown, sourceOption: string): unknown {
  if (!isEngineError(error) || (error.code !== 'invalid_input' && error.code !== 'payload_too_large'))
    return error;
  const options = [...OPTION_OF, [SOURCE, sourceOption] as const];
  const found = options.find(([field]) => field.test(error.message));
  return found === undefined ? error : new UsageError(error.message.replace(...found));
}

const DONE: Record<SignalEffect, Span> = {
  buffered: ['the execution does not wait for it yet; it is kept until then', 'plain'],
  not_matching: ['nothing waits for a signal of this name', 'warn'],
  not_counted: ['it adds nothing: the same was counted before', 'warn'],
  counted: ['it counts; more are needed', 'plain'],
  resumed: ['it was the last that was needed; the execution goes on', 'good'],
};

const REFUSED = {
  closed: 'nobody waits for it any more',
  expired: 'its time is over',
  too_many: 'the execution has taken as many signals as it may',
};

function tell(answer: DeliverOutcome, { printer }: Session): number {
  printer.result(answer, [wordsOf(answer)]);
  return answer.outcome === 'accepted' || answer.outcome === 'duplicate' ? EXIT.ok : EXIT.refused;
}

function wordsOf(answer: DeliverOutcome): Span[] {
  switch (answer.outcome) {
    case 'accepted':
      return [['accepted: '], DONE[answer.effect]];
    case 'duplicate':
      return [['was delivered before; then: '], [DONE[answer.effect][0]]];
    default:
      return [[`not accepted: ${REFUSED[answer.outcome]}`, 'warn']];
  }
}
