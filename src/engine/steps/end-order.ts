/**
 * The order in which a handler received the outcomes of what it awaits, stored so that later runs take the same
 * branches.
 */
import type { LeaseRef } from '../../contract/protocol.ts';
import type { EndOrder, OrderOutcome } from '../../contract/steps.ts';
import { isPassingTrouble } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { list, string, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { shape } from '../../contract/shape/shape.ts';
import { readOrders, recordOrders, type OrderRow } from './end-order.sql.ts';
import { Batch } from '../kit/batch.ts';
import type { EngineContext } from '../kit/context.ts';
import { inOrder, leaseKey, toRefusal } from '../kit/answers.ts';

/** A name and a key as JSON, which may take six characters for one. */
const END_BYTES = 4_096;

const endOrder = shape<EndOrder>({
  place: whole(0, LIMITS.handedEnds),
  ends: list(string(END_BYTES), LIMITS.handedEnds),
});

export interface Orders {
  record(lease: LeaseRef, order: EndOrder): Promise<OrderOutcome>;
  /** Resolves when every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createOrders(context: EngineContext): Orders {
  const records = new Batch<OrderRow, OrderOutcome>({
    maxItems: 500,
    maxFlights: 3,
    isItemFault: (error) => !isPassingTrouble(error),
    keyOf: (row) => row.uuid,
    sizeOf: (row) => row.ends.reduce((size, end) => size + end.length, 0),
    async run(rows) {
      const answers = inOrder(rows, await recordOrders(context.database, rows));
      return answers.map((row) => (row.outcome === 'recorded' ? { outcome: 'recorded' } : toRefusal(row)));
    },
  });
  return {
    record: async (lease, order) => records.add(orderRow(lease, order)),
    settled: () => records.settled(),
  };
}

function orderRow(lease: LeaseRef, order: EndOrder): OrderRow {
  const { place, ends } = endOrder.check(order, 'order');
  return { ...leaseKey(lease, 'lease'), place, ends: [...ends] };
}

/** Each record replaces what was stored from its `place` on. */
export async function readOrder(context: EngineContext, executionId: string): Promise<string[]> {
  const order: string[] = [];
  for (const { place, ends } of await readOrders(context.database, parseExecutionId(executionId))) {
    order.splice(place, order.length, ...ends);
  }
  return order;
}
