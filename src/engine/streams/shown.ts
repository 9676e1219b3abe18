/**
 * What readers of streams are shown of an execution that redacts values. A read that asks to reveal them, as typed handles
 * do, passes through untouched; any other learns first what the execution redacts.
 */
import type { Json } from '../../contract/json.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { REDACTED, type Redaction, type RevealOptions } from '../../contract/redaction.ts';
import type {
  StreamFrame,
  StreamItem,
  StreamPage,
  StreamSummary,
  SummaryItem,
  WatchItem,
} from '../../contract/streams.ts';
import { flag } from '../../contract/shape/kinds.ts';
import { shownValue } from '../../model/redaction.ts';
import { redactionOf } from '../executions/redaction.ts';
import type { EngineContext } from '../kit/context.ts';

type Read<Request, Answer> = (context: EngineContext, executionId: string, request: Request) => Answer;
type ShownRead<Request, Answer> = (
  context: EngineContext,
  executionId: string,
  request?: Request & RevealOptions,
) => Answer;

/** A read that is done once. */
export function shownOnce<Request extends object, Answer>(
  read: Read<Request, Promise<Answer>>,
  shown: (answer: Answer, redaction: Redaction) => Answer,
): ShownRead<Request, Promise<Answer>> {
  return async (context, executionId, request) => {
    const { reveal, rest } = revealOf(request);
    const answer = await read(context, executionId, rest);
    const redaction = await redactionOf(context, parseExecutionId(executionId), reveal);
    return redaction === null ? answer : shown(answer, redaction);
  };
}

/** A read that continues. */
export function shownItems<Request extends object, Item>(
  read: Read<Request, AsyncIterable<Item>>,
  shown: (item: Item, redaction: Redaction) => Item,
): ShownRead<Request, AsyncIterable<Item>> {
  return (context, executionId, request) => {
    const { reveal, rest } = revealOf(request);
    const items = read(context, executionId, rest);
    if (reveal) return items;
    const key = parseExecutionId(executionId);
    return new ShownItems(items, () => redactionOf(context, key), shown);
  };
}

/** Anything but an object is left to the read, which refuses it. */
function revealOf<Request extends object>(
  request: (Request & RevealOptions) | undefined,
): { reveal: boolean; rest: Request } {
  if (typeof request !== 'object' || request === null || !('reveal' in request))
    return { reveal: false, rest: request as Request };
  const { reveal = false, ...rest } = request;
  return { reveal: flag.check(reveal, 'request.reveal'), rest: rest as unknown as Request };
}

/** Asks once, when the first item is read. Where nothing is hidden an item passes without another promise. */
class ShownItems<Item> implements AsyncIterableIterator<Item> {
  readonly #items: AsyncIterator<Item>;
  readonly #ask: () => Promise<Redaction | null>;
  readonly #shown: (item: Item, redaction: Redaction) => Item;
  #asked: Promise<Redaction | null> | undefined;
  #isPlain = false;

  constructor(
    items: AsyncIterable<Item>,
    ask: () => Promise<Redaction | null>,
    shown: (item: Item, redaction: Redaction) => Item,
  ) {
    this.#items = items[Symbol.asyncIterator]();
    this.#ask = ask;
    this.#shown = shown;
  }

  next(): Promise<IteratorResult<Item>> {
    return this.#isPlain ? this.#items.next() : this.#next();
  }

  async #next(): Promise<IteratorResult<Item>> {
    // The item first: it is refused, or over, without asking.
    const item = await this.#items.next();
    if (item.done === true) return item;
    this.#asked ??= this.#ask();
    const redaction = await this.#asked;
    this.#isPlain = redaction === null;
    return redaction === null ? item : { done: false, value: this.#shown(item.value, redaction) };
  }

  async return(): Promise<IteratorResult<Item>> {
    await this.#items.return?.();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}

export function shownPage(page: StreamPage, redaction: Redaction): StreamPage {
  return { ...page, frames: page.frames.map((frame) => shownFrame(frame, redaction)) };
}

export function shownItem(item: StreamItem, redaction: Redaction): StreamItem {
  return item.type === 'frame' ? { ...item, frame: shownFrame(item.frame, redaction) } : item;
}

/** Pointers apply to frames that are JSON; of others, any part may be what they point to. */
function shownFrame(frame: StreamFrame, redaction: Redaction): StreamFrame {
  const { encoding, applied } = frame;
  const payload = shownPayload(frame, redaction);
  const text = encoding === 'json' ? JSON.stringify(payload) : payload;
  return {
    ...frame,
    payload,
    bytes: typeof text === 'string' ? Buffer.from(text) : (payload as Uint8Array),
    applied: applied && shownDocument(applied, redaction),
  };
}

function shownPayload(
  { mode, encoding, payload }: StreamFrame,
  redaction: Redaction,
): StreamFrame['payload'] {
  if (mode === 'summary') return shownDocument(payload as Document, redaction);
  if (encoding === 'binary') return new Uint8Array();
  return encoding === 'json' ? shownValue(payload as Json, redaction) : REDACTED;
}

type Document = { [key: string]: Json };

/** A document or a patch of one stays an object. */
function shownDocument(document: Document, redaction: Redaction): Document {
  return redaction === true ? {} : (shownValue(document, redaction) as Document);
}

export function shownSummary(summary: StreamSummary | null, redaction: Redaction): StreamSummary | null {
  return summary && { ...summary, document: shownDocument(summary.document, redaction) };
}

export function shownWatchItem(item: WatchItem, redaction: Redaction): WatchItem {
  if (item.type === 'document') return { ...item, document: shownDocument(item.document, redaction) };
  return item.type === 'progress' && item.message !== null ? { ...item, message: REDACTED } : item;
}

export function shownSummaryItem(item: SummaryItem, redaction: Redaction): SummaryItem {
  if (item.type === 'document') return { ...item, document: shownDocument(item.document, redaction) };
  return item.type === 'patch' ? { ...item, patch: shownDocument(item.patch, redaction) } : item;
}
