/**
 * A reader of the feed that is interrupted at random, in every way a reader can be, and resumes from the cursor of the
 * last event it received and from nothing else.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError } from '../../../dist/index.js';
import { Record } from './record.mjs';

const INTERRUPT_MS = { least: 50, most: 800 };
const BREAK_AFTER_EVENTS = 700;
const TRY_AGAIN_MS = 20;
const LAZY_MS = 400;
const PASSING = ['unavailable', 'contention', 'closed'];
/** By the loop itself: leave it, or read nothing for a while to fall behind. */
const INSIDE = ['break', 'dawdle'];
/** The others come from outside, at any moment. */
const INTERRUPTIONS = [...INSIDE, 'abort', 'close', 'cut'];

export class Reader {
  #seat;
  #record = new Record();
  #cursor = 'beginning';
  #target = Number.POSITIVE_INFINITY;
  #interruption;
  #connection;
  #timer;
  #stopping = new AbortController();
  counts = { subscriptions: 0, disconnected: 0, break: 0, dawdle: 0, abort: 0, close: 0, cut: 0 };
  faults = [];

  /** @param seat the connection it shares with others, as `connection()`, `isDropped()`, `drop()` and `cut()` */
  constructor(seat) {
    this.#seat = seat;
  }

  /** From now on undisturbed, up to this position. */
  drainTo(position) {
    this.#target = position;
    // A reader that waits for more after it has seen everything must be released.
    if (this.#record.last >= position) this.#stopping.abort();
  }

  giveUp() {
    this.#stopping.abort();
  }

  report() {
    return { ...this.#record.report(), counts: this.counts, faults: this.faults };
  }

  async run() {
    while (this.#record.last < this.#target && !this.#stopping.signal.aborted) {
      const ending = new AbortController();
      this.#arm(ending);
      try {
        await this.#follow(AbortSignal.any([ending.signal, this.#stopping.signal]));
      } catch (error) {
        if (!this.#mayFailSo(error)) this.faults.push(String(error?.stack ?? error));
        await delay(TRY_AGAIN_MS);
      } finally {
        clearTimeout(this.#timer);
      }
    }
  }

  async #follow(signal) {
    const connection = await this.#seat.connection();
    this.#connection = connection;
    const subscription = await connection.events.subscribe({ from: this.#cursor, signal });
    this.counts.subscriptions += 1;
    let left = this.#isDraining ? Number.POSITIVE_INFINITY : 1 + Math.random() * BREAK_AFTER_EVENTS;
    for await (const item of subscription) {
      if (signal.aborted) this.faults.push('an event was handed over after the signal');
      if (item.type === 'disconnected') {
        this.counts.disconnected += 1;
        continue;
      }
      this.#record.add(item);
      this.#cursor = item.cursor;
      if (this.#record.last >= this.#target) return;
      left -= 1;
      if (left < 0 && this.#interruption === 'break') {
        this.counts.break += 1;
        return;
      }
      if (left < 0 && this.#interruption === 'dawdle') {
        this.counts.dawdle += 1;
        left = Number.POSITIVE_INFINITY;
        await delay(LAZY_MS);
      }
    }
  }

  /** A call on a connection that another reader closes may fail in any way. */
  #mayFailSo(error) {
    return (isEngineError(error) && PASSING.includes(error.code)) || this.#seat.isDropped(this.#connection);
  }

  get #isDraining() {
    return this.#target !== Number.POSITIVE_INFINITY;
  }

  /** Chooses how this subscription is interrupted next; an interruption from outside comes after a while. */
  #arm(ending) {
    this.#interruption = undefined;
    if (this.#isDraining) return;
    const kind = INTERRUPTIONS[Math.floor(Math.random() * INTERRUPTIONS.length)];
    this.#interruption = kind;
    const { least, most } = INTERRUPT_MS;
    this.#timer = setTimeout(() => this.#interrupt(kind, ending), least + Math.random() * (most - least));
  }

  #interrupt(kind, ending) {
    if (this.#isDraining) return;
    const happens = INSIDE.includes(kind) ? 'abort' : kind;
    this.counts[happens] += 1;
    if (kind === 'close') void this.#seat.drop();
    else if (kind === 'cut') this.#seat.cut();
    // Also for one that was to leave by itself but got no event to leave after.
    else ending.abort();
    // A subscription outlives a cut, and is interrupted again.
    if (kind === 'cut') this.#arm(ending);
  }
}
