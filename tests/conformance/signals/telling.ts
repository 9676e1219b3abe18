/**
 * Suspended executions, and ways to signal them, for the tests of this folder.
 */
import type { Claim } from '../../../src/protocol/index.ts';
import type { DeliverOutcome, SignalCondition, SignalRequest, TokenRequest } from '../../../src/index.ts';
import { waitpointsOf } from '../../../src/model/conditions.ts';
import type { Bench } from '../open.ts';

export const leaf = (
  n: number,
  by: 'signals' | 'waitpoints' | 'sources',
  waitpoints: string[],
  match?: string,
): SignalCondition => ({ kind: 'count', n, by, waitpoints, ...(match === undefined ? {} : { match }) });

export const from = (identity: string) => ({ source: { identity } });

export interface Telling {
  /** A claim whose execution is suspended on a condition. */
  waiting(condition: SignalCondition, schema?: object): Promise<Claim>;
  tokenFor(claim: Claim, waitpoint?: string, request?: TokenRequest): Promise<string>;
  deliver(token: string, more?: Partial<SignalRequest>): Promise<DeliverOutcome>;
  /** The effect of a signal, or why it was not accepted. */
  effectOf(token: string, more?: Partial<SignalRequest>): Promise<string>;
}

export function tellingOn(bench: Bench): Telling {
  const deliver: Telling['deliver'] = (token, more = {}) => bench.engine.signal({ token, ...more });
  return {
    async waiting(condition, schema) {
      const claim = await bench.running();
      const waitpoints =
        schema === undefined
          ? []
          : waitpointsOf(condition).map((name) => ({ name, schema: schema as never }));
      await bench.port.suspend(claim, { waits: [{ name: 'wait', condition }], waitpoints });
      return claim;
    },
    tokenFor: async (claim, waitpoint = 'door', request = {}) =>
      (await bench.engine.waitpoints.issueToken(claim.executionId, waitpoint, request)).token,
    deliver,
    async effectOf(token, more) {
      const outcome = await deliver(token, more);
      return 'effect' in outcome ? outcome.effect : outcome.outcome;
    },
  };
}
