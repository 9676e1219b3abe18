/**
 * Installs the assertions of sql/testing/assertions.sql in a test schema: triggers that reject a state change the model
 * does not know and a commit that left something undone. The list of legal moves is generated here from the model's
 * transitions and situations; the checks are in the SQL file.
 */
import type { ClientBase } from 'pg';
import type { AttemptState, StateVector } from '../contract/states.ts';
import { SITUATIONS, situationOf, type Situation } from '../model/situations.ts';
import { completionEventOf, TRANSITIONS, type Transition } from '../model/transitions.ts';
import { quoteIdentifier, validSchemaName } from '../engine/database/names.ts';
import { testingSql } from '../engine/database/migrations/migrate.ts';

/** The state of an execution that does not exist yet. */
const NOTHING = 'nothing';

interface LegalMove {
  transition: string;
  from_state: string;
  to_state: string;
  epoch_step: number;
  attempt_step: number;
  retry_step: number;
  reclaim_step: number;
  replay_step: number;
  run_step: number;
  lease_event: string | null;
  completion_event: string | null;
  operator_event: string | null;
  signal_event: string | null;
  execution_event: string | null;
}

/** Installs or updates the assertions. The client must not be inside a transaction. */
export async function installAssertions(client: ClientBase, schema: string): Promise<void> {
  const text = testingSql('assertions.sql');
  await client.query('BEGIN');
  try {
    await client.query(`SET LOCAL search_path TO ${quoteIdentifier(validSchemaName(schema))}, pg_temp`);
    await client.query('SET LOCAL client_min_messages TO warning');
    await client.query(text);
    await client.query('DELETE FROM ff_legal_move');
    await client.query(
      'INSERT INTO ff_legal_move SELECT * FROM jsonb_populate_recordset(NULL::ff_legal_move, $1)',
      [JSON.stringify(legalMoves())],
    );
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

/** Every concrete change of the state vector the model allows. */
function legalMoves(): LegalMove[] {
  return Object.entries<Transition>(TRANSITIONS).flatMap(([name, transition]) =>
    startsOf(transition).flatMap((start) =>
      resultsOf(transition, start).map((result) => ({
        transition: name,
        from_state: start === null ? NOTHING : stateText(start),
        to_state: stateText(result),
        epoch_step: transition.epochStep,
        replay_step: transition.replayStep,
        run_step: transition.runStep,
        attempt_step: transition.attemptStep,
        retry_step: transition.retryStep,
        reclaim_step: transition.reclaimStep,
        lease_event: transition.leaseEvent,
        completion_event: completionEventOf(transition),
        operator_event: transition.operatorEvent,
        signal_event: transition.signalEvent,
        execution_event: transition.executionEvent,
      })),
    ),
  );
}

function startsOf(transition: Transition): (StateVector | null)[] {
  if (transition.from === null) return [null];
  return transition.from
    .flatMap((name) => vectorsOf(SITUATIONS[name], SITUATIONS[name].attemptStates))
    .filter(({ attemptState }) => transition.fromAttempt?.includes(attemptState) ?? true);
}

/** A transition that keeps the attempt state does not apply to a start whose attempt state the result cannot have. */
function resultsOf(transition: Transition, start: StateVector | null): StateVector[] {
  const attemptState = transition.attemptState ?? start?.attemptState;
  if (attemptState === undefined) return [];
  return vectorsOf(SITUATIONS[transition.to], [attemptState]).filter(
    (result) =>
      situationOf(result) === transition.to &&
      (transition.blockingReason === undefined || result.blockingReason === transition.blockingReason),
  );
}

function vectorsOf(situation: Situation, attemptStates: readonly AttemptState[]): StateVector[] {
  const { lifecyclePhase, ownershipState, eligibilityState, terminalOutcome } = situation;
  return situation.blockingReasons.flatMap((blockingReason) =>
    attemptStates.map((attemptState) => ({
      lifecyclePhase,
      ownershipState,
      eligibilityState,
      blockingReason,
      terminalOutcome,
      attemptState,
    })),
  );
}

function stateText(vector: StateVector): string {
  return [
    vector.lifecyclePhase,
    vector.ownershipState,
    vector.eligibilityState,
    vector.blockingReason,
    vector.terminalOutcome,
    vector.attemptState,
  ].join('/');
}
