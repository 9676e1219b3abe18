/**
 * The event feed of one engine: checks what is asked, finds the place to begin, and keeps what is open, so that it ends with
 * the engine. How events are read and handed over is known to the subscriptions.
 */
import { consumerName } from './consumers.ts';
import { eventsFilter, familyFilter, startOf, storedFilter, type Start } from './filter.ts';
import type { Events } from '../../contract/connection.ts';
import { EngineError } from '../../contract/errors.ts';
import type { EventFamily, FeedEvent } from '../../contract/events.ts';
import type {
  ConsumeOptions,
  Consumer,
  EventHandler,
  EventSubscription,
  EventFilter,
  EventsFilter,
  SubscribeOptions,
} from '../../contract/feed.ts';
import { abortSignal, choice, func, parsed, whole } from '../../contract/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse, shape, type Shape } from '../../contract/shape.ts';
import type { Transactor } from '../../contract/transactions.ts';
import type { EngineContext } from '../kit/context.ts';
import { startConsumer, type OpenConsumer } from './consumer.ts';
import { enterConsumer, readConsumer } from './consumers.sql.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { endsUnlessAborted, findPlace, placeOf, placeWithout } from './place.ts';
import type { FeedSource } from './source.ts';
import { openSubscription } from './subscription.ts';

const DEFAULT_BATCH = 256;

const subscribeFields = {
  from: parsed.optional(),
  until: choice(['now']).optional(),
  signal: abortSignal.optional(),
};
const subscribeOptions = shape<SubscribeOptions<EventsFilter>>({
  ...subscribeFields,
  filter: eventsFilter.optional(),
});
const leaseOptions = shape<SubscribeOptions>({
  ...subscribeFields,
  filter: familyFilter('lease').optional(),
});
const completionOptions = shape<SubscribeOptions>({
  ...subscribeFields,
  filter: familyFilter('completion').optional(),
});
const consumeOptions = shape<ConsumeOptions<unknown>>({
  from: parsed.optional(),
  filter: eventsFilter.optional(),
  batch: whole(1, LIMITS.consumerBatch).optional(),
  transact: func.optional(),
  signal: abortSignal.optional(),
  onError: func.optional(),
});

/** The feed of one engine: what is opened here ends with it. */
export interface Feed extends Events {
  /** Ends every subscription, and every consumer after the batch it is at, if that ends in time. Nothing can be opened any more. */
  close(deadlineMs: number): Promise<void>;
  /** Until consumers have said their last words to the database. */
  settled(): Promise<void>;
}

export function openFeed(context: EngineContext): Feed {
  const readers = new Readers(context);
  return {
    subscribe: (options) => readers.subscribe(options, subscribeOptions),
    subscribeLeaseHistory: (options) => readers.subscribe(options, leaseOptions, ['lease']),
    subscribeCompletions: (options) => readers.subscribe(options, completionOptions, ['completion']),
    consume: async (name, handler, options) =>
      readers.consume(
        checkConsume(name, handler as EventHandler<unknown>, options as ConsumeOptions<unknown>),
      ),
    close: (deadlineMs) => readers.close(deadlineMs),
    settled: () => readers.settled(),
  };
}

/** What is open. */
class Readers {
  readonly #context: EngineContext;
  /** From the moment one is asked for, so that many that are asked for at once do not pass the limit. */
  readonly #subscriptions = new Set<{ close(): Promise<void> }>();
  readonly #consumers = new Set<OpenConsumer>();
  #closed = false;

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** `families`: those the subscription is about, whatever its filter says. */
  async subscribe<Event extends FeedEvent, Filter extends EventFilter>(
    options: SubscribeOptions<Filter> = {},
    allowed: Shape<SubscribeOptions<Filter>>,
    families?: readonly EventFamily[],
  ): Promise<EventSubscription<Event>> {
    const { from, filter: given = {} as EventsFilter, signal } = allowed.check(options, 'options', '');
    const start = startOf(from, 'now');
    const filter = storedFilter(given, families ?? (given as EventsFilter).families ?? null);
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
    const { database, handlings } = this.#context;
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
    return this.#context.feed;
  }
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
  consumerName.check(name, 'name');
  func.check(handler, 'handler');
  const {
    from,
    filter = {},
    batch = DEFAULT_BATCH,
    transact,
    onError,
    signal,
  } = consumeOptions.check(options, 'options', '');
  return {
    name,
    handler,
    start: startOf(from, 'beginning'),
    filter: storedFilter(filter, filter.families ?? null),
    batch,
    transact,
    onError,
    signal,
  };
}
