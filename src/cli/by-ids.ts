/**
 * A verb on the executions that were named: all ids are looked up first, so that one that is unclear stops the command
 * before anything is done. Prints one line per id, in the order given, and returns the worst exit code among them.
 */
import type { Connection } from '../connect/connection.ts';
import { executionIdsOf, shortIds } from './short-ids.ts';
import { withEngine, type Session } from './session.ts';
import type { Span } from './style.ts';

interface ByIds<Outcome> {
  act(engine: Connection, ids: readonly string[]): Promise<Outcome[]>;
  wordsOf(outcome: Outcome): Span;
  codeOf(outcome: Outcome): number;
}

export async function actOnIds<Outcome extends { executionId: string }>(
  session: Session,
  given: readonly string[],
  { act, wordsOf, codeOf }: ByIds<Outcome>,
): Promise<number> {
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const ids = await executionIdsOf(engine, session, given);
    const outcomes = await act(engine, ids);
    const short = await shortIds(engine, session, ids);
    for (const outcome of outcomes)
      session.printer.result(outcome, [[[`${short(outcome.executionId)}  `], wordsOf(outcome)]]);
    return Math.max(...outcomes.map(codeOf));
  });
}
