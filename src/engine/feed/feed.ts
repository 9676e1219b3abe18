/**
 * The event feed of one engine: checks what is asked, finds the place to begin, and keeps what is open, so that it ends with
 * the engine. How events are read and handed over is known to the subscriptions.
 */
import { encodeCursor } from '../../contract/cursor.ts';
import type { Transactor } from '../../contract/engine.ts';
import { EngineError } from '../../contract/errors.ts';
import type { FeedEvent } from '../../contract/events.ts';
import type {
  ConsumeOptions,
  Consumer,
  ConsumerSnapshot,
  EventHandler,
  EventSubscription,
  Feed,
  SubscribeOptions,
} from '../../contract/feed.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  enterConsumer,
  forgetConsumer,
  listConsumers,
  readConsumer,
  resetConsumer,
  type StoredConsumer,
} from './consumers.sql.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { unlessAborted } from '../../model/aborting.ts';
import { startConsumer, type OpenConsumer } from './consumer.ts';
import type { FeedSource } from './source.ts';
import { openSubscription } from './subscription.ts';
import { checkName, checkSignal, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkEventsFilter, checkFamilyFilter, checkFunction, checkStart, type Start } from './filter.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';

const DEFAULT_BATCH = 256;

type Opened = () => EngineContext;

export interface BoundFeed {
  feed: Feed;
  /** Ends every subscription, and every consumer after the batch it is at, if that ends in time. Nothing can be opened any more. */
  close(deadlineMs: number): Promise<void>;
  /** Until consumers have said their last words to the database. */
  settled(): Promise<void>;
}

export function bindFeed(open: Opened): BoundFeed {
  const readers = new Readers(open);
  return {
    feed: {
      subscribeEvents: async (options) => readers.subscribe(options, checkEventsFilter),
      subscribeLeaseHistory: async (options) =>
        readers.subscribe(options, (filter) => checkFamilyFilter(filter, 'lease')),
      subscribeCompletions: async (options) =>
        readers.subscribe(options, (filter) => checkFamilyFilter(filter, 'completion')),
      consume: async (name, handler, options) =>
        readers.consume(
          checkConsume(name, handler as EventHandler<unknown>, options as ConsumeOptions<unknown>),
        ),
      async listConsumers() {
        const { database, feed } = open();
        const { last } = await feed.ends();
        return (await listConsumers(database, last, LIMITS.consumers)).map(toSnapshot);
      },
      async moveConsumer(name, to) {
        const checked = checkConsumerName(name);
        if (to === undefined) refuse('to', 'must be a cursor, now or beginning');
        const start = checkStart(to, 'now');
        const { database, feed } = open();
        const ends = await feed.ends();
        const found = await resetConsumer(database, checked, placeOf(start, ends));
        if (!found) return unknownConsumer(checked);
        const rows = await listConsumers(database, ends.last, LIMITS.consumers);
        const row = rows.find((each) => each.name === checked);
        return row === undefined ? unknownConsumer(checked) : toSnapshot(row);
      },
      async forgetConsumer(name) {
        const checked = checkConsumerName(name);
        return forgetConsumer(open().database, checked);
      },
    },
    close: (deadlineMs) => readers.close(deadlineMs),
    settled: () => readers.settled(),
  };
}

/** What is open. */
class Readers {
  readonly #open: Opened;
  /** From the moment one is asked for, so that many that are asked for at once do not pass the limit. */
  readonly #subscriptions = new Set<{ close(): Promise<void> }>();
  readonly #consumers = new Set<OpenConsumer>();
  #closed = false;

  constructor(open: Opened) {
    this.#open = open;
  }

  async subscribe<Event extends FeedEvent, Filter>(
    options: SubscribeOptions<Filter> = {},
    checkFilter: (filter: Filter | undefined) => StoredEventFilter,
  ): Promise<EventSubscription<Event>> {
    checkMembers(options, 'options', ['from', 'filter', 'until', 'signal']);
    checkChoice(options.until, 'until', ['now']);
    const start = checkStart(options.from, 'now');
    const filter = checkFilter(options.filter);
    const signal = checkSignal(options.signal, 'signal');
    const source = this.#openFeed();
    if (this.#subscriptions.size >= LIMITS.subscriptions) {
      throw new EngineError('too_many', `${LIMITS.subscriptions} subscriptions are open already.`);
    }
    const place = { close: async () => {} };
    this.#subscriptions.add(place);
    const onClose = (): void => void this.#subscriptions.delete(place);
    try {
      const ends = await endsUnlessAborted(source, signal);
      // With its signal aborted it is over before it begins, wherever that is.
      const after = ends === undefined ? placeWithout(start) : placeOf(start, ends);
      this.#openFeed();
      const until = options.until === undefined ? undefined : ends?.last;
      const subscription = openSubscription<Event>({ source, after, filter, until, signal, onClose });
      place.close = () => subscription.close();
      return subscription;
    } catch (error) {
      onClose();
      // What broke because of the closing is not the caller's trouble.
      this.#openFeed();
      throw error;
    }
  }

  async consume(request: ConsumeRequest): Promise<Consumer> {
    try {
      return await this.#consume(request);
    } catch (error) {
      this.#openFeed();
      throw error;
    }
  }

  async #consume({ start, ...request }: ConsumeRequest): Promise<Consumer> {
    const source = this.#openFeed();
    const { database, handlings } = this.#open();
    // Asked for in any case: a reader that is far behind must know it.
    const place = await findPlace(source, start).catch((error: unknown) => error);
    if ((await readConsumer(database, request.name)) === undefined) {
      if (typeof place !== 'bigint') throw place;
      const isKnown = await enterConsumer(database, request.name, place, LIMITS.consumers);
      if (!isKnown) refuse('name', `is new, and there are ${LIMITS.consumers} consumers already`, 'too_many');
    }
    this.#openFeed();
    const transact = request.transact ?? ((work) => handlings.run(work));
    const consumer = startConsumer({ ...request, database, source, transact });
    this.#consumers.add(consumer);
    const forget = (): void => void this.#consumers.delete(consumer);
    consumer.done.then(forget, forget);
    return consumer;
  }

  async close(deadlineMs: number): Promise<void> {
    this.#closed = true;
    await Promise.allSettled([
      ...[...this.#consumers].map((consumer) => consumer.drain(deadlineMs)),
      ...[...this.#subscriptions].map((subscription) => subscription.close()),
    ]);
  }

  async settled(): Promise<void> {
    await Promise.allSettled([...this.#consumers].map((consumer) => consumer.done));
  }

  #openFeed(): FeedSource {
    if (this.#closed) throw new EngineError('closed', 'The engine was closed.');
    return this.#open().feed;
  }
}

/** The position to go on after. Asking for the ends first makes `now` mean: not what was committed before the call. */
async function findPlace(source: FeedSource, start: Start): Promise<bigint> {
  return placeOf(start, await source.ends());
}

async function endsUnlessAborted(
  source: FeedSource,
  signal: AbortSignal | undefined,
): Promise<FeedEnds | undefined> {
  if (signal?.aborted) return undefined;
  return unlessAborted<FeedEnds | undefined>(signal, source.ends()).catch((error: unknown) => {
    if (signal?.aborted) return undefined;
    throw error;
  });
}

function placeWithout(start: Start): bigint {
  return typeof start === 'bigint' ? start : 0n;
}

type FeedEnds = Awaited<ReturnType<FeedSource['ends']>>;

function placeOf(start: Start, { floor, last }: FeedEnds): bigint {
  const oldest = floor - 1n;
  if (start === 'now') return last;
  if (start === 'beginning') return oldest;
  if (start > last) {
    throw new EngineError(
      'cursor_ahead',
      `from stands for position ${start}, and the last event has ${last}: it is of another database, or this one was restored to an earlier time.`,
      { field: 'from' },
    );
  }
  if (start < oldest) {
    throw new EngineError(
      'cursor_expired',
      `from stands for position ${start}, and events up to ${oldest} are no longer kept: go on from error.oldest, or from 'beginning'.`,
      { field: 'from', oldest: encodeCursor(oldest) },
    );
  }
  return start;
}

interface ConsumeRequest {
  name: string;
  start: Start;
  filter: StoredEventFilter;
  batch: number;
  transact: Transactor<unknown> | undefined;
  handler: EventHandler<unknown>;
  onError: ((error: unknown, failures: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

function checkConsume(
  name: string,
  handler: EventHandler<unknown>,
  options: ConsumeOptions<unknown> = {},
): ConsumeRequest {
  const checkedName = checkConsumerName(name);
  if (typeof handler !== 'function') refuse('handler', 'must be a function');
  checkMembers(options, 'options', ['from', 'filter', 'batch', 'transact', 'signal', 'onError']);
  const { batch = DEFAULT_BATCH } = options;
  return {
    name: checkedName,
    handler,
    start: checkStart(options.from, 'beginning'),
    filter: checkEventsFilter(options.filter),
    batch: checkWhole(batch, 'batch', 1, LIMITS.consumerBatch),
    transact: checkFunction(options.transact, 'transact'),
    onError: checkFunction(options.onError, 'onError'),
    signal: checkSignal(options.signal, 'signal'),
  };
}

function unknownConsumer(name: string): never {
  throw new EngineError('not_found', `There is no consumer ${name}.`, { field: 'name' });
}

function checkConsumerName(name: unknown): string {
  return checkName(name, 'name', LIMITS.consumerNameBytes);
}

function toSnapshot({ position: at, lag, ...consumer }: StoredConsumer): ConsumerSnapshot {
  const position = BigInt(at);
  return { ...consumer, cursor: encodeCursor(position), position, lag: BigInt(lag) };
}
