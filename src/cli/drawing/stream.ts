/**
 * How the items of a stream look on a screen: text as it was written, JSON one line each, everything else as a note.
 * Following and exit codes are decided elsewhere.
 */
import type { StreamFrame, StreamItem } from '../../contract/streams.ts';
import { printable, withoutControls } from '../../contract/secrets.ts';
import { thousands } from '../wording.ts';

export interface ScreenOutput {
  write(text: string): unknown;
  isTTY?: boolean;
}

/** Names of finished steps in one note. */
const STEPS_NAMED = 5;

export class StreamScreen {
  readonly #output: ScreenOutput;
  readonly #note: (sentence: string) => void;
  /** The frame type of the unfinished line; null at the beginning of a line. */
  #openLine: string | null = null;

  constructor(output: ScreenOutput, note: (sentence: string) => void) {
    this.#output = output;
    this.#note = note;
  }

  show(item: StreamItem): void {
    if (item.type === 'frame') return this.#frame(item.frame);
    this.#say(noteOf(item));
  }

  /** Ends the line, so that the shell's prompt starts on a new one. */
  end(): void {
    if (this.#output.isTTY === true) this.#endLine();
  }

  #frame(frame: StreamFrame): void {
    const { encoding, payload, frameType, bytes } = frame;
    if (encoding === 'binary')
      return this.#say(`${thousands(bytes.length)} bytes of type ${printable(frameType)}.`);
    if (encoding === 'text') return this.#text(payload as string, frameType);
    this.#endLine();
    this.#output.write(`${this.#clean(JSON.stringify(payload))}\n`);
  }

  /** Text frames of one type run together, such as the tokens of an answer. */
  #text(text: string, frameType: string): void {
    if (this.#openLine !== null && this.#openLine !== frameType) this.#endLine();
    const clean = this.#clean(text);
    if (clean === '') return;
    this.#output.write(clean);
    this.#openLine = clean.endsWith('\n') ? null : frameType;
  }

  #clean(text: string): string {
    return this.#output.isTTY === true ? withoutControls(text) : text;
  }

  #endLine(): void {
    if (this.#openLine === null) return;
    this.#output.write('\n');
    this.#openLine = null;
  }

  /** Notes go to stderr, which on a terminal is the same screen. */
  #say(sentence: string): void {
    this.end();
    this.#note(sentence);
  }
}

function noteOf(item: Exclude<StreamItem, { type: 'frame' }>): string {
  const attempt = `attempt ${item.attemptIndex + 1}`;
  switch (item.type) {
    case 'gap':
      return `${thousands(item.missed)} best-effort frames were trimmed before they could be read.`;
    case 'resumed':
      return `${attempt} continues under another lease.`;
    case 'restarted':
      return `${attempt} writes something else than before: ${printable(item.stream)} no longer counts from ${item.from} on.`;
    case 'paused':
      return `${attempt} is paused (${item.reason}) and will continue.`;
    case 'closed':
      return `${attempt} ended: ${item.reason}.`;
    case 'superseded':
      return `attempt ${item.by + 1} follows: the output of ${attempt} no longer counts${exceptIn(item.finishedSteps)}.`;
    case 'forgotten':
      return 'the execution is past its retention time and was deleted.';
  }
}

function exceptIn(steps: readonly { name: string; key: string }[]): string {
  if (steps.length === 0) return '';
  const names = steps
    .slice(0, STEPS_NAMED)
    .map(({ name, key }) => printable(key === '' ? name : `${name} (${key})`));
  const more = steps.length > STEPS_NAMED ? ` and ${steps.length - STEPS_NAMED} more` : '';
  return `, except in finished steps: ${names.join(', ')}${more}`;
}

/** An item as JSON: bytes in base64, and no value twice. */
export function jsonOf(item: StreamItem): object {
  if (item.type !== 'frame') return item;
  const { bytes, payload, ...frame } = item.frame;
  const readable = frame.encoding === 'binary' ? Buffer.from(bytes).toString('base64') : payload;
  return { ...item, frame: { ...frame, payload: readable } };
}
