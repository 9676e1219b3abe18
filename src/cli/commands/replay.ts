/**
 * `flowfabric replay`: runs executions again after they have ended, from the step that failed or from the start. One line
 * per id, in the order given; the exit code is the worst of them. Or all that fit a filter.
 */
import { parseExecutionId } from '../../contract/ids.ts';
import type { ReplayOutcome, ReplayRequest } from '../../contract/operations.ts';
import { bulkCommand, readReason, targetOf, type BulkOptions } from './bulk.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import type { Line, Tone } from '../look.ts';
import { withEngine, type Session } from '../session.ts';

export interface ReplayOptions extends BulkOptions {
  from?: string;
  reason?: string;
  by?: string;
}

export async function replayCommand(
  ids: readonly string[],
  options: ReplayOptions,
  session: Session,
): Promise<number> {
  const target = targetOf(ids, options);
  for (const id of ids) parseExecutionId(id, 'id');
  const { from, by } = options;
  if (from !== undefined && from !== 'start' && from !== 'failed_step')
    throw new UsageError('--from must be failed_step or start.');
  const request: ReplayRequest = {
    reason: readReason(options.reason, options),
    ...(from === undefined ? {} : { from }),
    ...(by === undefined ? {} : { by }),
  };
  if (target === 'filter') return replayMatching(request, options, session);
  const answers = await withEngine(session, { listen: 'off' }, (engine) => engine.replay(ids, request));
  for (const answer of answers) session.printer.result(answer, [lineOf(answer)]);
  return Math.max(...answers.map(codeOf));
}

function replayMatching(request: ReplayRequest, options: ReplayOptions, session: Session): Promise<number> {
  const { reason, from, by } = request;
  const words = [
    'replay',
    '--reason',
    reason,
    ...(from === undefined ? [] : ['--from', from]),
    ...(by === undefined ? [] : ['--by', by]),
  ];
  return bulkCommand({ verb: { verb: 'replay', ...request }, deed: 'replay', words }, options, session);
}

function codeOf({ outcome }: ReplayOutcome): number {
  if (outcome === 'not_found') return EXIT.notFound;
  return outcome === 'replayed' ? EXIT.ok : EXIT.refused;
}

function lineOf(answer: ReplayOutcome): Line {
  const [words, tone] = wordsOf(answer);
  return [[`${answer.executionId}  `], [words, tone]];
}

function wordsOf(answer: ReplayOutcome): [string, Tone] {
  switch (answer.outcome) {
    case 'replayed':
      return [`replayed (replay ${answer.replayCount})`, 'good'];
    case 'not_terminal':
      return [`not replayed: it has not ended (${answer.lifecyclePhase})`, 'warn'];
    case 'replays_exhausted':
      return [`not replayed: its policy allows no more than ${answer.replayCount} replays`, 'warn'];
    case 'moved':
      return ['not replayed: it changed meanwhile', 'warn'];
    case 'not_found':
      return ['not replayed: there is no such execution', 'bad'];
  }
}
