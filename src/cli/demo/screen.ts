/**
 * The screen of the demo: on a terminal a frame that is redrawn in place, with events scrolling above it; in a file or a
 * pipe plain lines now and then. Lines are spans of text with a tone, so that they can be cut to the width before colours
 * are added. What is shown is decided elsewhere.
 */
import type { Progress, WorkerView } from './progress.ts';
import { styleFor, paint, type Line, type Style, type Output } from '../style.ts';

export interface Screen {
  /** How often to call `show`. */
  readonly everyMs: number;
  /** A line that stays. */
  say(line: Line): void;
  /** The current progress. */
  show(progress: Progress, elapsedMs: number): void;
  /** Nothing is redrawn after this. */
  settle(): void;
}

const LIVE_EVERY_MS = 100;
const PLAIN_EVERY_MS = 1_000;
const DEFAULT_COLUMNS = 80;
const BAR_MAX_COLUMNS = 40;
const BAR_MIN_COLUMNS = 8;
/** The text beside the bar. */
const BAR_BESIDE_COLUMNS = 42;

const HIDE_CURSOR = '\u001B[?25l';
const SHOW_CURSOR = '\u001B[?25h';
const CLEAR_BELOW = '\u001B[J';

export function openScreen(output: Output, env: NodeJS.ProcessEnv): Screen {
  const style = styleFor(output, env);
  const isLive = output.isTTY === true && env['TERM'] !== 'dumb';
  return isLive ? new LiveScreen(output, style) : new PlainScreen(output, style);
}

class PlainScreen implements Screen {
  readonly everyMs = PLAIN_EVERY_MS;
  readonly #output: Output;
  readonly #style: Style;

  constructor(output: Output, style: Style) {
    this.#output = output;
    this.#style = style;
  }

  say(line: Line): void {
    this.#output.write(`${paint(line, this.#style)}\n`);
  }

  show(progress: Progress, elapsedMs: number): void {
    const { ended, total, retried, running } = progress;
    const working = [...progress.workers.values()].filter(({ state }) => state === 'working').length;
    this.say(
      event(elapsedMs, [
        [
          `${count(ended)} of ${count(total)} done, ${running} running on ${working} workers, ${retried} retried`,
        ],
      ]),
    );
  }

  settle(): void {
    // Printed lines stay.
  }
}

class LiveScreen implements Screen {
  readonly everyMs = LIVE_EVERY_MS;
  readonly #output: Output;
  readonly #style: Style;
  #frame: Line[] = [];
  #drawnLines = 0;
  #cursor: 'shown' | 'hidden' = 'shown';

  constructor(output: Output, style: Style) {
    this.#output = output;
    this.#style = style;
  }

  say(line: Line): void {
    this.#draw(`${paint(line, this.#style)}\n`);
  }

  show(progress: Progress, elapsedMs: number): void {
    this.#frame = frame(progress, elapsedMs, { ...this.#style, columns: this.#columns() });
    this.#draw('');
  }

  settle(): void {
    this.#frame = [];
    this.#drawnLines = 0;
    if (this.#cursor === 'hidden') this.#output.write(SHOW_CURSOR);
    this.#cursor = 'shown';
  }

  #columns(): number {
    return this.#output.columns ?? DEFAULT_COLUMNS;
  }

  /** One write, so that a frame is never half drawn. */
  #draw(above: string): void {
    const up = this.#drawnLines === 0 ? '' : `\r\u001B[${this.#drawnLines}A${CLEAR_BELOW}`;
    const width = this.#columns() - 1;
    const lines = this.#frame.map((line) => `${paint(cut(line, width), this.#style)}\n`).join('');
    const hide = this.#cursor === 'shown' && lines !== '' ? HIDE_CURSOR : '';
    if (hide !== '') this.#cursor = 'hidden';
    this.#output.write(`${hide}${up}${above}${lines}`);
    this.#drawnLines = this.#frame.length;
  }
}

/** The part of the screen that is redrawn: a bar, and a line for each worker. */
export function frame(progress: Progress, elapsedMs: number, style: Style & { columns: number }): Line[] {
  const workers = [...progress.workers.values()];
  return [[['']], barLine(progress, elapsedMs, style), ...workers.map(workerLine), [['']]];
}

function barLine(progress: Progress, elapsedMs: number, style: Style & { columns: number }): Line {
  const { ended, total } = progress;
  const room = style.columns - BAR_BESIDE_COLUMNS;
  const width = Math.max(BAR_MIN_COLUMNS, Math.min(BAR_MAX_COLUMNS, room));
  const filled = Math.floor((ended / total) * width);
  const [full, empty] = style.characters === 'unicode' ? ['█', '░'] : ['#', '.'];
  const percent = Math.floor((ended / total) * 100);
  return [
    ['  '],
    [full.repeat(filled), 'good'],
    [empty.repeat(width - filled), 'dim'],
    [` ${String(percent).padStart(3)} %  `, 'strong'],
    [`${count(ended)} of ${count(total)}  ${seconds(elapsedMs)}`],
  ];
}

function workerLine(worker: WorkerView): Line {
  const [text, tone] = {
    working: [`${String(worker.running).padStart(2)} running`, 'plain'] as const,
    killed: ['killed', 'bad'] as const,
    ended: ['ended', 'bad'] as const,
  }[worker.state];
  return [
    ['  '],
    [worker.name.padEnd(9), 'strong'],
    [text.padStart(11), tone],
    [`${String(worker.completed).padStart(6)} completed`],
    [`${String(worker.retried).padStart(5)} retried`, worker.retried > 0 ? 'warn' : 'dim'],
    [`${String(worker.takenOver).padStart(4)} taken over`, worker.takenOver > 0 ? 'good' : 'dim'],
  ];
}

/** A line about an event: when, and what. */
export function event(elapsedMs: number, what: Line): Line {
  return [[`${seconds(elapsedMs).padStart(8)}  `, 'dim'], ...what];
}

export function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

/** 12345 as 12,345, in every locale. */
export function count(value: number): string {
  return value.toLocaleString('en-US');
}

/** The line, cut to this width. */
export function cut(line: Line, width: number): Line {
  let room = Math.max(0, width);
  return line.flatMap(([text, tone]) => {
    const kept = text.slice(0, room);
    room -= kept.length;
    return kept === '' ? [] : [[kept, tone ?? 'plain'] as const];
  });
}
