/**
 * `flowfabric cancel`: ends executions for good, with a reason that is kept. Prints one line per id, in the order given,
 * and exits with the worst code among them; or acts on every execution that matches a filter.
 */
import type { CancelOutcome } from '../../contract/executions.ts';
import { BULK_OPTIONS, bulkCommand, FILTER_NOTE, readReason, targetOf, type BulkOptions } from '../bulk.ts';
import { actOnIds } from '../by-ids.ts';
import { AN_ID, BY_OPTION, IDS_ARGUMENT, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import type { Span } from '../style.ts';
import type { Session } from '../session.ts';

interface CancelOptions extends BulkOptions {
  reason?: string;
  by?: string;
}

export const cancel: CommandSpec = {
  name: 'cancel',
  summary: 'cancel executions',
  description: `Cancel executions for good. Their handlers are aborted; the reason is kept.\n${FILTER_NOTE}`,
  arguments: [IDS_ARGUMENT],
  options: [REASON_OPTION, BY_OPTION, ...BULK_OPTIONS],
  examples: [
    `flowfabric cancel ${AN_ID} --reason 'sent twice' --by ada`,
    'flowfabric cancel --lane mail --tag customer=42 --dry-run',
  ],
  action: run,
};

async function run(session: Session, options: CancelOptions, ids: readonly string[]): Promise<number> {
  const target = targetOf(ids, options);
  const { by } = options;
  const note = { reason: readReason(options.reason, options), ...(by === undefined ? {} : { by }) };
  if (target === 'filter') {
    const words = ['cancel', '--reason', note.reason, ...(by === undefined ? [] : ['--by', by])];
    return bulkCommand({ verb: { verb: 'cancel', ...note }, deed: 'cancel', words }, options, session);
  }
  return actOnIds(session, ids, {
    act: (engine, whole) => engine.cancel(whole, note),
    wordsOf,
    codeOf,
  });
}

function codeOf({ outcome }: CancelOutcome): number {
  if (outcome === 'not_found') return EXIT.notFound;
  return outcome === 'cancelled' || outcome === 'already_cancelled' ? EXIT.ok : EXIT.refused;
}

function wordsOf(answer: CancelOutcome): Span {
  switch (answer.outcome) {
    case 'cancelled':
      return ['cancelled', 'good'];
    case 'already_cancelled':
      return ['was already cancelled', 'plain'];
    case 'not_active':
      return [`not cancelled: it had already ended (${answer.terminalOutcome})`, 'warn'];
    case 'moved':
      return ['not cancelled: it changed meanwhile', 'warn'];
    case 'not_found':
      return ['not cancelled: there is no such execution', 'bad'];
  }
}
