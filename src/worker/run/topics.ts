/**
 * Waits for what is published to a topic. A wait is a step named like its topic and numbered in the order of the calls, so
 * that the same topic can be waited for again. When the worker is freed meanwhile is decided in waits.ts.
 */
import { durationMs } from '../../contract/shape/duration.ts';
import { LIMITS } from '../../contract/limits.ts';
import { parsed, string } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import { parseWith } from '../../contract/shape/schema.ts';
import type { WaitEnd } from '../../contract/signals.ts';
import type { TopicOptions, TopicResult } from '../../define/task-context.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import type { HandOver } from './hand-over.ts';
import type { StepBook } from './step-book.ts';
import { awaitEnd, type SignalWait } from './wait-for.ts';
import type { Waits } from './waits.ts';

const topicOptions = shape<TopicOptions<unknown>>({ timeout: parsed.optional(), schema: parsed.optional() });
const topicName = string(LIMITS.topicBytes);

export class Topics {
  readonly #lease: HeldLease;
  readonly #book: StepBook;
  readonly #waits: Waits;
  readonly #handOver: HandOver;
  /** How often each topic was waited for in this run. */
  readonly #calls = new Map<string, number>();

  constructor(lease: HeldLease, book: StepBook, waits: Waits, handOver: HandOver) {
    this.#lease = lease;
    this.#book = book;
    this.#waits = waits;
    this.#handOver = handOver;
  }

  /** Returns the request of the next wait for a topic. Throws for what cannot be one, before it is counted. */
  plan(topic: string, options: TopicOptions<unknown>): SignalWait {
    topicName.check(topic, 'topic');
    const { timeout } = topicOptions.check(options, 'options');
    const timeoutMs =
      timeout === undefined ? undefined : durationMs(timeout, 'options.timeout', LIMITS.delayMs);
    const calls = (this.#calls.get(topic) ?? 0) + 1;
    this.#calls.set(topic, calls);
    const { namespace } = this.#lease.claim;
    return {
      request: {
        name: `topic:${topic}`,
        key: calls === 1 ? '' : String(calls),
        condition: { kind: 'topic', topic, namespace },
        ...(timeoutMs === undefined ? {} : { timeoutMs, onTimeout: 'resume' as const }),
      },
      waitpoints: [],
    };
  }

  wait<Data>(plan: SignalWait, topic: string, options: TopicOptions<Data>): Promise<TopicResult<Data>> {
    const parts = { book: this.#book, waits: this.#waits, handOver: this.#handOver };
    return awaitEnd(parts, plan, (end) => resultOf(end, topic, options));
  }
}

async function resultOf<Data>(
  { outcome, topic: received }: WaitEnd,
  topic: string,
  { schema }: TopicOptions<Data>,
): Promise<TopicResult<Data>> {
  if (outcome === 'timed_out' || received === undefined) return { outcome: 'timed_out', data: undefined };
  const what = { field: 'data', of: `Topic "${topic}"` };
  const data = await parseWith(schema, received.data, what);
  return { outcome: 'published', data: data as Data, publishedAtMs: received.publishedAtMs };
}
