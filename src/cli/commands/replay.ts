/**
 * `flowfabric replay`: runs executions again after they have ended, from the failed step or from the start. Prints one line
 * per id, in the order given, and exits with the worst code among them; or acts on every execution that matches a filter.
 */
import { parseExecutionId } from '../../contract/ids.ts';
import type { ReplayOutcome, ReplayRequest } from '../../contract/operations.ts';
import { BULK_OPTIONS, bulkCommand, FILTER_NOTE, readReason, targetOf, type BulkOptions } from '../bulk.ts';
import { AN_ID, BY_OPTION, IDS_ARGUMENT, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import type { Line, Tone } from '../style.ts';
import { withEngine, type Session } from '../session.ts';

interface ReplayOptions extends BulkOptions {
  from?: string;
  reason?: string;
  by?: string;
}

export const replay: CommandSpec = {
  name: 'replay',
  summary: 'run finished executions again',
  description: `Run executions again after they have ended. Their history is kept.\n${FILTER_NOTE}`,
  arguments: [IDS_ARGUMENT],
  options: [
    ['--from <place>', 'failed_step keeps finished steps, start repeats all (default: failed_step)'],
    REASON_OPTION,
    BY_OPTION,
    ...BULK_OPTIONS,
  ],
  examples: [
    `flowfabric replay ${AN_ID} --reason 'the mail server is back'`,
    `flowfabric replay --state failed --ended-after 2h --reason 'it is back'`,
  ],
  action: run,
};

async function run(session: Session, options: ReplayOptions, ids: readonly string[]): Promise<number> {
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
  const answers = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.executions.replay(ids, request),
  );
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
