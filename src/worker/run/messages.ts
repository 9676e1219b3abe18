/**
 * Receives messages: each is a wait that takes the next message of its mailbox, numbered in the order of the calls, so
 * that every run gets the same ones. When the worker is freed meanwhile is decided in waits.ts.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import { durationMs, type Duration } from '../../contract/shape/duration.ts';
import { parsed } from '../../contract/shape/kinds.ts';
import { parseWith, schemaKind, type Schema } from '../../contract/shape/schema.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { HandedMessage, WaitEnd } from '../../contract/signals.ts';
import type { Inbox, InboxOptions, Message, ReceiveOptions } from '../../define/messages.ts';
import type { HandOver } from './hand-over.ts';
import { insist } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { TaskAborted } from '../task.ts';
import type { Signals, SignalWait } from './wait-for.ts';
import type { Waits } from './waits.ts';

const receiveOptions = shape<ReceiveOptions<unknown>>({
  schema: schemaKind.optional(),
  timeout: parsed.optional(),
});
const inboxOptions = shape<InboxOptions<unknown>>({ schema: schemaKind.optional(), idle: parsed.optional() });

/** Whose messages are received. */
interface Receiver {
  readonly port: WorkerPort;
  readonly lease: HeldLease;
  readonly waits: Waits;
  readonly signals: Signals;
  readonly handOver: HandOver;
}

/** How one message is received. */
interface Receiving<Payload> {
  call: string;
  schema: Schema<unknown, Payload> | undefined;
  timeoutMs: number | undefined;
}

export class Messages {
  readonly #run: Receiver;
  readonly #calls = new Map<string, number>();
  /** Messages that this run has received. */
  #received = 0;

  constructor(run: Receiver) {
    this.#run = run;
  }

  receive<Payload>(
    mailbox: string,
    options: ReceiveOptions<Payload> = {},
  ): Promise<Message<Payload> | undefined> {
    const call = `receive('${mailbox}')`;
    return this.#run.signals.explaining(call, async () => {
      receiveOptions.check(options, 'options');
      const timeoutMs = msOf(options.timeout, 'options.timeout');
      return this.#next(mailbox, { call, schema: options.schema, timeoutMs });
    });
  }

  inbox<Payload>(mailbox: string, options: InboxOptions<Payload> = {}): Inbox<Payload> {
    const call = `inbox('${mailbox}')`;
    inboxOptions.check(options, 'options');
    const receiving = { call, schema: options.schema, timeoutMs: msOf(options.idle, 'options.idle') };
    const isHalfway = (): boolean => this.#received >= LIMITS.messagesPerRun / 2;
    return {
      get shouldContinue() {
        return isHalfway();
      },
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          const value = await this.#run.signals.explaining(call, () => this.#next(mailbox, receiving));
          return value === undefined ? { done: true, value } : { done: false, value };
        },
      }),
    };
  }

  async #next<Payload>(
    mailbox: string,
    { schema, timeoutMs }: Receiving<Payload>,
  ): Promise<Message<Payload> | undefined> {
    const number = (this.#calls.get(mailbox) ?? 0) + 1;
    this.#calls.set(mailbox, number);
    const wait = messageWaitOf(mailbox, String(number), timeoutMs);
    return this.#run.signals.ended(wait, async ({ message }: WaitEnd) => {
      if (message === undefined) return undefined;
      this.#received += 1;
      const what = { field: 'payload', of: `Message "${message.id}" in "${mailbox}"` };
      const payload = await parseWith(schema, message.payload, what);
      return this.#messageOf(mailbox, wait, message, payload);
    });
  }

  #messageOf<Payload>(
    mailbox: string,
    { request: { name, key } }: SignalWait,
    { id, sentAtMs, wantsReply, isReplied }: HandedMessage,
    payload: Payload,
  ): Message<Payload> {
    const reply = async (value: unknown): Promise<void> => {
      const { handOver, waits } = this.#run;
      const turn = handOver.numbered('reply', name, key);
      await handOver.take(turn, () =>
        waits.during(async () => {
          // An earlier run has, and the first reply stays.
          if (isReplied !== true) await this.#reply({ name, key, messageId: id, value });
        }),
      );
    };
    return { id, mailbox, payload, sentAtMs, wantsReply, reply };
  }

  async #reply(request: { name: string; key: string; messageId: string; value: unknown }): Promise<void> {
    const { port, lease } = this.#run;
    const answer = await insist(lease, () => port.reply(lease.claim, request));
    if (answer.outcome === 'replied') return;
    lease.refused(answer);
    throw new TaskAborted(lease.lostBy ?? 'lease_lost');
  }
}

/** Steps of the handler have no such names, unless it makes them. */
function messageWaitOf(mailbox: string, key: string, timeoutMs: number | undefined): SignalWait {
  return {
    request: {
      name: `inbox:${mailbox}`,
      key,
      condition: { kind: 'message', mailbox },
      ...(timeoutMs === undefined ? {} : { timeoutMs, onTimeout: 'resume' }),
    },
    waitpoints: [],
  };
}

function msOf(duration: Duration | undefined, field: string): number | undefined {
  return duration === undefined ? undefined : durationMs(duration, field, LIMITS.delayMs);
}
