/**
 * `flowfabric replay`: runs executions again after they have ended, from the failed step, from a named one or from the
 * start. Prints one line per id, in the order given, and exits with the worst code among them; or acts on every execution that matches a filter.
 */
import type { ReplayOutcome, ReplayRequest } from '../../contract/operations.ts';
import type { StepKey } from '../../contract/steps.ts';
import { BULK_OPTIONS, bulkCommand, FILTER_NOTE, readReason, targetOf, type BulkOptions } from '../bulk.ts';
import { actOnIds } from '../by-ids.ts';
import { AN_ID, BY_OPTION, IDS_ARGUMENT, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import type { Span } from '../style.ts';
import type { Session } from '../session.ts';

interface ReplayOptions extends BulkOptions {
  from?: NonNullable<ReplayRequest['from']>;
  fromStep?: string;
  stepKey?: string;
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
    ['--from-step <name>', 'keep what was recorded before this step, and repeat it and the rest'],
    ['--step-key <key>', 'the key of that step, if it has one'],
    REASON_OPTION,
    BY_OPTION,
    ...BULK_OPTIONS,
  ],
  examples: [
    `flowfabric replay ${AN_ID} --reason 'the mail server is back'`,
    `flowfabric replay ${AN_ID} --from-step charge --reason 'the price was wrong'`,
    `flowfabric replay --state failed --ended-after 2h --reason 'it is back'`,
  ],
  action: run,
};

async function run(session: Session, options: ReplayOptions, ids: readonly string[]): Promise<number> {
  const target = targetOf(ids, options);
  const { from, by } = options;
  const fromStep = stepOf(options);
  const request: ReplayRequest = {
    reason: readReason(options.reason, options),
    ...(from === undefined ? {} : { from }),
    ...(fromStep === undefined ? {} : { fromStep }),
    ...(by === undefined ? {} : { by }),
  };
  if (target === 'filter') return replayMatching(request, options, session);
  return actOnIds(session, ids, {
    act: (engine, whole) => engine.executions.replay(whole, request),
    wordsOf,
    codeOf,
  });
}

function stepOf({ from, fromStep, stepKey }: ReplayOptions): StepKey | undefined {
  if (fromStep === undefined) {
    if (stepKey !== undefined) throw new UsageError('--step-key needs --from-step.');
    return undefined;
  }
  if (from !== undefined) throw new UsageError('Give either --from or --from-step.');
  return { name: fromStep, ...(stepKey === undefined ? {} : { key: stepKey }) };
}

function replayMatching(request: ReplayRequest, options: ReplayOptions, session: Session): Promise<number> {
  const { reason, from, by } = request;
  const words = [
    'replay',
    '--reason',
    reason,
    ...(from === undefined ? [] : ['--from', from]),
    ...(options.fromStep === undefined ? [] : ['--from-step', options.fromStep]),
    ...(options.stepKey === undefined ? [] : ['--step-key', options.stepKey]),
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
    case 'step_not_found':
      return ['not replayed: it has recorded no such step', 'warn'];
    case 'moved':
      return ['not replayed: it changed meanwhile', 'warn'];
    case 'not_found':
      return ['not replayed: there is no such execution', 'bad'];
  }
}
