/**
 * The consumers of the event feed as an operator sees them: listing, moving and forgetting them. consumer.ts runs them.
 */
import { encodeCursor } from '../../contract/cursor.ts';
import { EngineError } from '../../contract/errors.ts';
import type { ConsumerSnapshot, FeedStart } from '../../contract/feed.ts';
import { asciiName } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse } from '../../contract/shape/shape.ts';
import type { EngineContext } from '../kit/context.ts';
import { forgetConsumer, listConsumers, resetConsumer, type StoredConsumer } from './consumers.sql.ts';
import { startOf } from './filter.ts';
import { placeOf } from './place.ts';

export const consumerName = asciiName(LIMITS.consumerNameBytes);

export async function listAll({ database, feed }: EngineContext): Promise<ConsumerSnapshot[]> {
  const { last } = await feed.bounds();
  return (await listConsumers(database, last, LIMITS.consumers)).map(toSnapshot);
}

export async function moveOne(
  { database, feed }: EngineContext,
  name: string,
  to: FeedStart,
): Promise<ConsumerSnapshot> {
  const checked = consumerName.check(name, 'name');
  if (to === undefined) refuse('to', 'must be a cursor, now or beginning');
  const start = startOf(to, 'now');
  const bounds = await feed.bounds();
  const found = await resetConsumer(database, checked, placeOf(start, bounds));
  if (!found) return unknownConsumer(checked);
  const rows = await listConsumers(database, bounds.last, LIMITS.consumers);
  const row = rows.find((each) => each.name === checked);
  return row === undefined ? unknownConsumer(checked) : toSnapshot(row);
}

export async function forgetOne({ database }: EngineContext, name: string): Promise<boolean> {
  return forgetConsumer(database, consumerName.check(name, 'name'));
}

function unknownConsumer(name: string): never {
  throw new EngineError('not_found', `There is no consumer ${name}.`, { field: 'name' });
}

function toSnapshot({ position: at, lag, ...consumer }: StoredConsumer): ConsumerSnapshot {
  const position = BigInt(at);
  return { ...consumer, cursor: encodeCursor(position), position, lag: BigInt(lag) };
}
