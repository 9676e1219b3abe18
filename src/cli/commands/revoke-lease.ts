/**
 * `flowfabric revoke-lease`: takes a running execution away from its worker, with a reason that is kept. Another worker
 * runs it again, unless no takeover is left.
 */
import type { RevokeOutcome } from '../../contract/executions.ts';
import { readReason } from '../bulk.ts';
import { AN_ID, BY_OPTION, ID_ARGUMENT, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, shortIds } from '../short-ids.ts';
import type { Span } from '../style.ts';

interface RevokeOptions {
  lease?: string;
  reason?: string;
  by?: string;
}

export const revokeLease: CommandSpec = {
  name: 'revoke-lease',
  summary: 'take a running execution away from its worker',
  description:
    'Take a running execution away from its worker. The attempt is interrupted, and\n' +
    'another worker runs it again.',
  arguments: [ID_ARGUMENT],
  options: [['--lease <id>', 'only this lease, as describe --json prints it'], REASON_OPTION, BY_OPTION],
  examples: [`flowfabric revoke-lease ${AN_ID} --reason 'the worker hangs'`],
  action: run,
};

async function run(session: Session, options: RevokeOptions, given: string): Promise<number> {
  checkId(given);
  const { lease, by } = options;
  const request = {
    reason: readReason(options.reason, {}),
    ...(lease === undefined ? {} : { leaseId: lease }),
    ...(by === undefined ? {} : { by }),
  };
  const answer = await withEngine(session, { listen: 'off' }, async (engine) => {
    const executionId = await executionIdOf(engine, session, given);
    const revoked = await engine.executions.revokeLease(executionId, request);
    const short = await shortIds(engine, session, executionId);
    session.printer.result({ executionId, ...revoked }, [[[`${short(executionId)}  `], wordsOf(revoked)]]);
    return revoked;
  });
  if (answer.outcome === 'not_found') return EXIT.notFound;
  return answer.outcome === 'revoked' || answer.outcome === 'reclaims_exhausted' ? EXIT.ok : EXIT.refused;
}

function wordsOf(answer: RevokeOutcome): Span {
  switch (answer.outcome) {
    case 'revoked':
      return ['revoked', 'good'];
    case 'reclaims_exhausted':
      return ['revoked; no takeover was left, so it failed', 'warn'];
    case 'no_active_lease':
      return [`not revoked: no worker holds it (${answer.lifecyclePhase})`, 'warn'];
    case 'stale_lease':
      return ['not revoked: it has another lease now', 'warn'];
    case 'not_found':
      return ['not revoked: there is no such execution', 'bad'];
  }
}
