/**
 * The event feed of one engine: checks options, finds the starting position, and keeps track of open subscriptions and
 * consumers, so that they are closed with the engine. They read and pass on the events themselves.
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
import { abortSignal, choice, func, parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse, shape, type Shape } from '../../contract/shape/shape.ts';
import type { Transactor } from '../../contract/transactions.ts';
import type { EngineContext } from '../kit/context.ts';
import { startConsumer, type OpenConsumer } from './consumer.ts';
import { enterConsumer, readConsumer } from './consumers.sql.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { boundsUnlessAborted, placeOf, placeWithout } from './place.ts';
import type { FeedSource } from './source.ts';
import { openSubscription } from './subscription.ts';

const DEFAULT_BATCH = 256;
const NO_CONSUMER_HERE =
  'The server is a standby, and a consumer must store its position: connect to the primary, or use events.subscribe and keep the cursor yourself.';

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

/** The feed of one engine: what is opened here is closed with it. */
export interface Feed extends Events {
  /**
   * Closes every subscription, and every consumer once its current batch has finished or the deadline has passed.
   * Nothing can be opened after it.
   */
  close(deadlineMs: number): Promise<void>;
  /** Waits until all consumers have released their names. */
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

/** The open subscriptions and consumers. */
class Readers {
  readonly #context: EngineContext;
  /** Counted from the request on, so that concurrent requests cannot exceed the limit. */
  readonly #subscriptions = new Set<{ close(): Promise<void> }>();
  readonly #consumers = new Set<OpenConsumer>();
  #closed = false;

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** `families` overrides those of the filter. */
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
      throw new EngineError(
        'too_many',
        `${LIMITS.subscriptions} subscriptions are already open; close some first.`,
      );
    }
    const place = { close: async () => {} };
    this.#subscriptions.add(place);
    const onClose = (): void => void this.#subscriptions.delete(place);
    try {
      const bounds = await boundsUnlessAborted(source, signal);
      // Already aborted: the start does not matter.
      const after = bounds === undefined ? placeWithout(start) : placeOf(start, bounds);
      this.#openFeed();
      const until = options.until === undefined ? undefined : bounds?.last;
      const subscription = openSubscription<Event>({ source, after, filter, until, signal, onClose });
      place.close = () => subscription.close();
      return subscription;
    } catch (error) {
      onClose();
      // If the engine was closed meanwhile, that is the cause to report.
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
    // Read even for an existing consumer, so that one far behind learns how far.
    const bounds = await source.bounds();
    if (bounds.isStandby) throw new EngineError('unavailable', NO_CONSUMER_HERE);
    if ((await readConsumer(database, request.name)) === undefined) {
      const place = placeOf(start, bounds);
      const isKnown = await enterConsumer(database, request.name, place, LIMITS.consumers);
      if (!isKnown)
        refuse(
          'name',
          `is new, and there are already ${LIMITS.consumers} consumers; forget one first`,
          'too_many',
        );
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
