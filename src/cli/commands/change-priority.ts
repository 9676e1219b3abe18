/**
 * `flowfabric change-priority`: moves executions in the queue while they wait for a worker. Prints one line per id, in the
 * order given, and exits with the worst code among them; or acts on every execution that matches a filter.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { PriorityOutcome } from '../../contract/operations.ts';
import { BULK_OPTIONS, bulkCommand, FILTER_NOTE, targetOf, type BulkOptions } from '../bulk.ts';
import { actOnIds } from '../by-ids.ts';
import { AN_ID, BY_OPTION, IDS_ARGUMENT, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { parseWhole } from '../input.ts';
import type { Span } from '../style.ts';
import type { Session } from '../session.ts';

interface PriorityOptions extends BulkOptions {
  by?: string;
}

export const changePriority: CommandSpec = {
  name: 'change-priority',
  alias: 'priority',
  summary: 'move waiting executions in the queue',
  description: `Change the priority of executions that wait for a worker.\n${FILTER_NOTE}`,
  arguments: [['<n>', `0 to ${LIMITS.priority}, higher first`], IDS_ARGUMENT],
  options: [BY_OPTION, ...BULK_OPTIONS],
  examples: [
    `flowfabric change-priority 9000 ${AN_ID}`,
    'flowfabric change-priority 0 --lane mail --kind newsletter',
  ],
  action: run,
};

async function run(
  session: Session,
  options: PriorityOptions,
  text: string,
  ids: readonly string[],
): Promise<number> {
  const priority = parseWhole(text, 'The priority', { min: 0, max: LIMITS.priority });
  const target = targetOf(ids, options);
  const { by } = options;
  const request = { priority, ...(by === undefined ? {} : { by }) };
  if (target === 'filter') {
    const words = ['change-priority', text, ...(by === undefined ? [] : ['--by', by])];
    const verb = { verb: 'change_priority', ...request } as const;
    const deed = `give priority ${priority} to`;
    return bulkCommand({ verb, deed, words }, options, session);
  }
  return actOnIds(session, ids, {
    act: (engine, whole) => engine.executions.changePriority(whole, request),
    wordsOf: (answer) => wordsOf(answer, priority),
    codeOf,
  });
}

function codeOf({ outcome }: PriorityOutcome): number {
  if (outcome === 'not_found') return EXIT.notFound;
  return outcome === 'changed' ? EXIT.ok : EXIT.refused;
}

function wordsOf(answer: PriorityOutcome, priority: number): Span {
  switch (answer.outcome) {
    case 'changed':
      return [`priority ${priority}, was ${answer.oldPriority}`, 'good'];
    case 'not_eligible':
      return ['not changed: it is not waiting for a worker', 'warn'];
    case 'moved':
      return ['not changed: a worker claimed it meanwhile', 'warn'];
    case 'not_found':
      return ['not changed: there is no such execution', 'bad'];
  }
}
