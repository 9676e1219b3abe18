/**
 * `flowfabric replay`: runs executions again after they have ended, from the failed step or from the start. Prints one line
 * per id, in the order given, and exits with the worst code among them; or acts on every execution that matches a filter.
 */
import type { ReplayOutcome, ReplayRequest } from '../../contract/operations.ts';
import { BULK_OPTIONS, bulkCommand, FILTER_NOTE, readReason, targetOf, type BulkOptions } from '../bulk.ts';
import { actOnIds } from '../by-ids.ts';
import { AN_ID, BY_OPTION, IDS_ARGUMENT, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import type { Span } from '../style.ts';
import type { Session } from '../session.ts';

interface ReplayOptions extends BulkOptions {
  from?: NonNullable<ReplayRequest['from']>;
  reason?: string;
  by?: string;
}

export const replay: CommandSpec = {
  name: 'replay',
  summary: 'run finished executions again',
  description: `Run executions again after they have ended. Their history is kept.\n${FILTER_NOTE}`,
  arguments: [IDS_ARGUMENT],
  options: [
    [
      '--from <place>',
      'failed_step keeps finished steps, start repeats all (default: failed_step)',
      { choices: ['failed_step', 'start'] },
    ],
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
  const { from, by } = options;
  const request: ReplayRequest = {
    reason: readReason(options.reason, options),
    ...(from === undefined ? {} : { from }),
    ...(by === undefined ? {} : { by }),
  };
  if (target === 'filter') return replayMatching(request, options, session);
  return actOnIds(session, ids, {
    act: (engine, whole) => engine.executions.replay(whole, request),
    wordsOf,
    codeOf,
  });
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

function wordsOf(answer: ReplayOutcome): Span {
  switch (answer.outcome) {
    case 'replayed':
      return [`replayed (replay ${answer.replayCount})`, 'good'];
    case 'not_terminal':
      return [`not replayed: it has not ended (${answer.lifecyclePhase})`, 'warn'];
    case 'replays_exhausted':
      return [`not replayed: its policy allows no more than ${answer.replayCount} replays`, 'warn'];
    case 'key_taken':
      return ['not replayed: another execution has its key now', 'warn'];
    case 'moved':
      return ['not replayed: it changed meanwhile', 'warn'];
    case 'not_found':
      return ['not replayed: there is no such execution', 'bad'];
  }
}
