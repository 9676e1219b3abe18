/**
 * `flowfabric signal`: sends a signal to a waiting execution by a token, and prints what became of it. Sending one
 * without a token, as an operator, is `flowfabric waitpoints approve`.
 */
import { AN_ID, type CommandSpec } from '../command.ts';
import {
  asOption,
  IDEMPOTENCY_OPTION,
  parseSource,
  PAYLOAD_OPTION,
  printDelivery,
  readSignal,
  type SignalOptions,
} from '../delivery.ts';
import { UsageError } from '../exit-codes.ts';
import { readStdin } from '../input.ts';
import { withEngine, type Session } from '../session.ts';

interface TokenSignalOptions extends SignalOptions {
  source?: string;
}

export const signal: CommandSpec = {
  name: 'signal',
  summary: 'send a signal',
  description:
    'Send a signal by a token. Give - and the token on stdin to keep it out of the\n' +
    'shell history and of process lists. Needs the variable FLOWFABRIC_SIGNING_SECRET.',
  arguments: [['<token>', 'a token, or a link with one; - reads it from stdin']],
  options: [
    ['--name <name>', 'the name of the signal (default: signal, or the name bound to the token)'],
    PAYLOAD_OPTION,
    ['--source <type:identity>', 'who sends it; you vouch for that (default: the token itself)'],
    IDEMPOTENCY_OPTION,
  ],
  examples: [
    'flowfabric signal - --name paid --source service:billing < token.txt',
    `flowfabric waitpoints issue-token ${AN_ID} parcel | flowfabric signal -`,
  ],
  action: run,
};

async function run(session: Session, options: TokenSignalOptions, given: string): Promise<number> {
  if (given === '-' && options.payload === '-')
    throw new UsageError('Only one of the token and --payload can be read from stdin.');
  const { source } = options;
  const token = given === '-' ? (await readStdin('The token')).trim() : given;
  const request = {
    token,
    ...(await readSignal(options)),
    ...(source === undefined ? {} : { source: parseSource(source, '--source') }),
  };
  const signingSecret = session.signingSecrets();
  const answer = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.signal(request),
  ).catch((error: unknown) => {
    throw asOption(error, '--source');
  });
  return printDelivery(answer, session);
}
