/**
 * Generates ids of executions, of children and the members of a flow, and of flows.
 */
import { randomFillSync } from 'node:crypto';
import { mintExecution, type ParsedExecutionId } from '../../../contract/ids.ts';

/** Ids in one partition: that of a flow for its members, that of an execution for its children. */
export function mintFor(partition: number): () => ParsedExecutionId {
  const mint = newMint();
  return () => ({ uuid: mint().uuid, partition });
}

export function mintFlow(): ParsedExecutionId {
  return newMint()();
}

const RANDOM_BYTES = 10;
const randomPool = new Uint8Array(RANDOM_BYTES * 256);
let randomUsed = randomPool.length;

/** Ids for one call. The host's time in them only orders index pages; nothing reads it back. */
export function newMint(): () => ParsedExecutionId {
  const unixMs = performance.timeOrigin + performance.now();
  return () => {
    if (randomUsed >= randomPool.length) {
      randomFillSync(randomPool);
      randomUsed = 0;
    }
    randomUsed += RANDOM_BYTES;
    return mintExecution(unixMs, randomPool, randomUsed - RANDOM_BYTES);
  };
}
