/**
 * `flowfabric cancel`: ends executions for good, with a reason that is kept. One line per id, in the order given; the
 * exit code is the worst of them. Or all that fit a filter.
 */
import type { CancelOutcome } from '../../contract/engine.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { bulkCommand, readReason, targetOf, type BulkOptions } from './bulk.ts';
import { EXIT } from '../exit-codes.ts';
import type { Line, Tone } from '../look.ts';
import { withEngine, type Session } from '../session.ts';

export interface CancelOptions extends BulkOptions {
  reason?: string;
  by?: string;
}

export async function cancelCommand(
  ids: readonly string[],
  options: CancelOptions,
  session: Session,
): Promise<number> {
  const target = targetOf(ids, options);
  for (const id of ids) parseExecutionId(id, 'id');
  const { by } = options;
  const note = { reason: readReason(options.reason, options), ...(by === undefined ? {} : { by }) };
  if (target === 'filter') {
    const words = ['cancel', '--reason', note.reason, ...(by === undefined ? [] : ['--by', by])];
    return bulkCommand({ verb: { verb: 'cancel', ...note }, deed: 'cancel', words }, options, session);
  }
  const answers = await withEngine(session, { listen: 'off' }, (engine) => engine.cancel(ids, note));
  for (const answer of answers) session.printer.result(answer, [lineOf(answer)]);
  return Math.max(...answers.map(codeOf));
}

function codeOf({ outcome }: CancelOutcome): number {
  if (outcome === 'not_found') return EXIT.notFound;
  return outcome === 'cancelled' || outcome === 'already_cancelled' ? EXIT.ok : EXIT.refused;
}

function lineOf(answer: CancelOutcome): Line {
  const [words, tone] = wordsOf(answer);
  return [[`${answer.executionId}  `], [words, tone]];
}

function wordsOf(answer: CancelOutcome): [string, Tone] {
  switch (answer.outcome) {
    case 'cancelled':
      return ['cancelled', 'good'];
    case 'already_cancelled':
      return ['was cancelled before', 'plain'];
    case 'not_active':
      return [`not cancelled: it ended before (${answer.terminalOutcome})`, 'warn'];
    case 'moved':
      return ['not cancelled: it changed meanwhile', 'warn'];
    case 'not_found':
      return ['not cancelled: there is no such execution', 'bad'];
  }
}
