/**
 * `flowfabric cancel`: ends executions for good, with a reason that is kept. One line per id, in the order given; the
 * exit code is the worst of them.
 */
import type { CancelOutcome } from '../contract/engine.ts';
import { parseExecutionId } from '../contract/ids.ts';
import { EXIT, UsageError } from './exit-codes.ts';
import type { Line, Tone } from './look.ts';
import { withEngine, type Session } from './session.ts';

export interface CancelOptions {
  reason: string;
  by?: string;
}

export async function cancelCommand(
  ids: readonly string[],
  { reason, by }: CancelOptions,
  session: Session,
): Promise<number> {
  for (const id of ids) parseExecutionId(id, 'id');
  if (reason.trim() === '') throw new UsageError('--reason must say why.');
  const answers = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.cancel(ids, { reason, ...(by === undefined ? {} : { by }) }),
  );
  for (const answer of answers) session.printer.result(answer, [lineOf(answer)]);
  return Math.max(...answers.map(codeOf));
}

function codeOf({ outcome }: CancelOutcome): number {
  if (outcome === 'not_found') return EXIT.notFound;
  return outcome === 'not_active' ? EXIT.refused : EXIT.ok;
}

function lineOf(answer: CancelOutcome): Line {
  const [words, tone] = wordsOf(answer);
  return [[`${answer.executionId}  `], [words, tone]];
}

function wordsOf(answer: CancelOutcome): [string, Tone] {
  if (answer.outcome === 'not_active')
    return [`not cancelled: it ended before (${answer.terminalOutcome})`, 'warn'];
  if (answer.outcome === 'not_found') return ['not cancelled: there is no such execution', 'bad'];
  return answer.outcome === 'cancelled' ? ['cancelled', 'good'] : ['was cancelled before', 'plain'];
}
