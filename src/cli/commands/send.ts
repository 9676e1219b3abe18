/**
 * `flowfabric send`: sends a message to a mailbox of an execution, or with --reply a request, and prints what became of it.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { SendOutcome } from '../../contract/messages.ts';
import { printable } from '../../contract/secrets.ts';
import { ID_ARGUMENT } from '../by-key.ts';
import { AN_ID, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseDuration, readInput } from '../input.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf } from '../short-ids.ts';
import type { Span } from '../style.ts';

interface SendCommandOptions {
  id?: string;
  reply?: true;
  timeout?: string;
}

export const send: CommandSpec = {
  name: 'send',
  summary: 'send a message to an execution',
  description:
    'Send a message to a mailbox of an execution. It is kept until the execution\n' +
    'receives it. With --reply, wait for the reply and print it.',
  arguments: [
    ID_ARGUMENT,
    ['<mailbox>', 'the name of the mailbox'],
    ['[payload]', 'JSON, @file, or - for stdin (default: null)'],
  ],
  options: [
    ['--id <id>', 'the id of the message: the same id sends nothing again'],
    ['--reply', 'wait for the reply, and print it'],
    ['--timeout <duration>', 'with --reply: how long to wait for it (default: 30s)'],
  ],
  examples: [
    `flowfabric send ${AN_ID} commands '{"add":5}'`,
    `flowfabric send ${AN_ID} questions '"how many?"' --reply --timeout 5s`,
  ],
  action: run,
};

async function run(
  session: Session,
  options: SendCommandOptions,
  given: string,
  mailbox: string,
  payloadText: string | undefined,
): Promise<number> {
  checkId(given);
  if (options.timeout !== undefined && options.reply === undefined)
    throw new UsageError('--timeout needs --reply.');
  const payload = payloadText === undefined ? null : await readInput(payloadText, 'The payload');
  const own = options.id === undefined ? {} : { id: options.id };
  return withEngine(session, { listen: options.reply ? 'on' : 'off' }, async (engine) => {
    const id = await executionIdOf(engine, session, given);
    if (options.reply) {
      const { timeout } = options;
      const wait =
        timeout === undefined
          ? {}
          : { timeout: parseDuration(timeout, '--timeout', LIMITS.requestLongestMs) };
      const reply = await engine.request(id, mailbox, payload, { ...own, ...wait });
      session.printer.result({ outcome: 'replied', reply }, [[[printable(JSON.stringify(reply))]]]);
      return EXIT.ok;
    }
    const answer = await engine.send(id, mailbox, payload, own);
    session.printer.result(answer, [wordsOf(answer)]);
    return answer.outcome === 'sent' || answer.outcome === 'duplicate' ? EXIT.ok : EXIT.refused;
  });
}

function wordsOf(answer: SendOutcome): Span[] {
  switch (answer.outcome) {
    case 'sent':
    case 'started':
      return [['sent; it is kept until the execution receives it', 'good']];
    case 'duplicate':
      return [['a message with this id was sent before']];
    case 'not_active':
      return [['the execution has finished', 'warn']];
    case 'too_many':
      return [['the execution has as many messages as it may that it has not received', 'warn']];
  }
}
