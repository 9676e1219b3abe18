/**
 * What the commands that send a signal share: reading the name, payload, key and source from options, naming the option
 * in an engine error, and printing what became of the signal.
 */
import { isEngineError } from '../contract/errors.ts';
import type { DeliverOutcome, SignalEffect, SignalSource } from '../contract/signals.ts';
import type { OptionSpec } from './command.ts';
import { EXIT, UsageError } from './exit-codes.ts';
import { readInput } from './input.ts';
import type { Session } from './session.ts';
import type { Span } from './style.ts';

export interface SignalOptions {
  name?: string;
  payload?: string;
  idempotencyKey?: string;
}

export const PAYLOAD_OPTION: OptionSpec = ['--payload <json>', 'its payload: JSON, @file, or - for stdin'];
export const IDEMPOTENCY_OPTION: OptionSpec = [
  '--idempotency-key <key>',
  'an idempotency key: the same key delivers nothing again',
];

export async function readSignal({ name, payload, idempotencyKey }: SignalOptions): Promise<{
  name?: string;
  payload?: unknown;
  idempotencyKey?: string;
}> {
  return {
    ...(name === undefined ? {} : { name }),
    ...(payload === undefined ? {} : { payload: await readInput(payload, '--payload') }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  };
}

/** `service:billing`; a name alone is a user. */
export function parseSource(text: string, option: string): SignalSource {
  const at = text.indexOf(':');
  const source = { type: text.slice(0, Math.max(at, 0)), identity: text.slice(at + 1) };
  if (source.identity === '' || at === 0)
    throw new UsageError(`${option} must be type:identity, such as user:ada.`);
  return at < 0 ? { identity: text } : source;
}

const OPTION_OF: readonly [RegExp, string][] = [
  [/^request\.signal\.payload/, '--payload'],
  [/^request\.signal\.name/, '--says'],
  [/^request\.expiresIn/, '--expires'],
  [/^request\.linkTo/, '--link'],
  [/^request\.name/, '--name'],
  [/^request\.payload/, '--payload'],
  [/^request\.idempotencyKey/, '--idempotency-key'],
  [/^request\.by/, '--by'],
];

const SOURCE = /^request\.source(?:\.\w+)?/;

/** An engine error about the request, reworded to name the option; any other error unchanged. */
export function asOption(error: unknown, sourceOption: string): unknown {
  if (!isEngineError(error) || (error.code !== 'invalid_input' && error.code !== 'payload_too_large'))
    return error;
  const options = [...OPTION_OF, [SOURCE, sourceOption] as const];
  const found = options.find(([field]) => field.test(error.message));
  return found === undefined ? error : new UsageError(error.message.replace(...found));
}

const EFFECTS: Record<SignalEffect, Span> = {
  buffered: ['the execution is not waiting for it yet; it is kept until then', 'plain'],
  not_matching: ['nothing waits for a signal of this name', 'warn'],
  not_counted: ['not counted: one like it has already been counted', 'warn'],
  counted: ['it counts; more are needed', 'plain'],
  resumed: ['it was the last one needed; the execution resumes', 'good'],
};

const REFUSED = {
  closed: 'nothing waits for it any more',
  expired: 'its time is over',
  too_many: 'the execution has received as many signals as it may',
};

/** Prints what became of the signal and returns the exit code. */
export function printDelivery(answer: DeliverOutcome, { printer }: Session): number {
  printer.result(answer, [wordsOf(answer)]);
  return answer.outcome === 'accepted' || answer.outcome === 'duplicate' ? EXIT.ok : EXIT.refused;
}

function wordsOf(answer: DeliverOutcome): Span[] {
  switch (answer.outcome) {
    case 'accepted':
      return [[answer.effect === 'not_counted' ? 'accepted, but ' : 'accepted: '], EFFECTS[answer.effect]];
    case 'duplicate':
      return [['was already delivered: '], [EFFECTS[answer.effect][0]]];
    default:
      return [[`not accepted: ${REFUSED[answer.outcome]}`, 'warn']];
  }
}
