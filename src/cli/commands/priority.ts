/**
 * `flowfabric priority`: moves executions in the queue while they wait for a worker. One line per id, in the order given;
 * the exit code is the worst of them. Or all that fit a filter.
 */
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { PriorityOutcome } from '../../contract/operations.ts';
import { bulkCommand, targetOf, type BulkOptions } from './bulk.ts';
import { EXIT } from '../exit-codes.ts';
import { parseWhole } from '../input.ts';
import type { Line, Tone } from '../look.ts';
import { withEngine, type Session } from '../session.ts';

export interface PriorityOptions extends BulkOptions {
  by?: string;
}

export async function priorityCommand(
  text: string,
  ids: readonly string[],
  options: PriorityOptions,
  session: Session,
): Promise<number> {
  const priority = parseWhole(text, 'The priority', { min: 0, max: LIMITS.priority });
  const target = targetOf(ids, options);
  for (const id of ids) parseExecutionId(id, 'id');
  const { by } = options;
  const request = { priority, ...(by === undefined ? {} : { by }) };
  if (target === 'filter') {
    const words = ['priority', text, ...(by === undefined ? [] : ['--by', by])];
    const verb = { verb: 'change_priority', ...request } as const;
    const deed = `give priority ${priority} to`;
    return bulkCommand({ verb, deed, words }, options, session);
  }
  const answers = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.changePriority(ids, request),
  );
  for (const answer of answers) session.printer.result(answer, [lineOf(answer, priority)]);
  return Math.max(...answers.map(codeOf));
}

function codeOf({ outcome }: PriorityOutcome): number {
  if (outcome === 'not_found') return EXIT.notFound;
  return outcome === 'changed' ? EXIT.ok : EXIT.refused;
}

function lineOf(answer: PriorityOutcome, priority: number): Line {
  const [words, tone] = wordsOf(answer, priority);
  return [[`${answer.executionId}  `], [words, tone]];
}

function wordsOf(answer: PriorityOutcome, priority: number): [string, Tone] {
  switch (answer.outcome) {
    case 'changed':
      return [`priority ${priority}, was ${answer.oldPriority}`, 'good'];
    case 'not_eligible':
      return ['not changed: it does not wait for a worker now', 'warn'];
    case 'moved':
      return ['not changed: it was taken meanwhile', 'warn'];
    case 'not_found':
      return ['not changed: there is no such execution', 'bad'];
  }
}
