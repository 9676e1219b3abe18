/**
 * Generates ids of executions, of the members of a flow, and of flows.
 */
import { randomFillSync } from 'node:crypto';
import { mintExecution, type ParsedExecutionId } from '../../../contract/ids.ts';

/** Ids for members of one flow, in its partition. */
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
    return mintExecution(unixMs, randomPool.subarray(randomUsed - RANDOM_BYTES, randomUsed));
  };
}
