/**
 * Topics: what is published to whoever waits for it, now or later.
 */
import type { Json } from './json.ts';
import type { Duration } from './shape/duration.ts';

/** Options of publishing. */
export interface PublishOptions {
  /** The topics of a namespace are its own; executions wait for those of theirs. Default `default`. */
  namespace?: string;
  /**
   * How long it is kept for those who begin to wait later, unless something newer is published. Default 7 days; with 0
   * only those who wait now receive it.
   */
  keep?: Duration;
}

/** The outcome of publishing. */
export interface PublishResult {
  outcome: 'published';
  publishedAtMs: number;
}

/** What was published, as a wait stores it. */
export interface ReceivedTopic {
  /** Grows with each publish of the topic. */
  seq: number;
  publishedAtMs: number;
  data: Json;
}

/** The first publish of a topic after the wait began, or the last one before that if the run has not received it. */
export interface TopicCondition {
  readonly kind: 'topic';
  readonly topic: string;
  /** Default `default`. */
  readonly namespace?: string;
}
