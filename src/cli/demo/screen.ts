/**
 * How the demo looks: on a terminal a frame that is drawn again in place, with what happens scrolling above it; in a
 * file or a pipe plain lines now and then. Lines are spans of text with a tone, so that they can be cut to the
 * width before any colour is added. What is shown is decided elsewhere.
 */
import type { Progress, WorkerView } from './progress.ts';
import { lookFor, paint, type Line, type Look, type Output } from '../look.ts';

export interface Screen {
  /** How often `show` is worth calling. */
  readonly everyMs: number;
  /** A line that stays. */
  say(line: Line): void;
  /** How it stands now. */
  show(progress: Progress, elapsedMs: number): void;
  /** Nothing is drawn in place after this. */
  settle(): void;
}

const LIVE_EVERY_MS = 100;
const PLAIN_EVERY_MS = 1_000;
const DEFAULT_COLUMNS = 80;
const BAR_MAX_COLUMNS = 40;
const BAR_MIN_COLUMNS = 8;
/** What stands beside the bar. */
const BAR_BESIDE_COLUMNS = 42;

const HIDE_CURSOR = '\u001B[?25l';
const SHOW_CURSOR = '\u001B[?25h';
const CLEAR_BELOW = '\u001B[J';

export function openScreen(output: Output, env: NodeJS.ProcessEnv): Screen {
  const look = lookFor(output, env);
  const isLive = output.isTTY === true && env['TERM'] !== 'dumb';
  return isLive ? new LiveScreen(output, look) : new PlainScreen(output, look);
}

class PlainScreen implements Screen {
  readonly everyMs = PLAIN_EVERY_MS;
  readonly #output: Output;
  readonly #look: Look;

  constructor(output: Output, look: Look) {
    this.#output = output;
    this.#look = look;
  }

  say(line: Line): void {
    this.#output.write(`${paint(line, this.#look)}\n`);
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
    // Every line stays as it was written.
  }
}

class LiveScreen implements Screen {
  readonly everyMs = LIVE_EVERY_MS;
  readonly #output: Output;
  readonly #look: Look;
  #frame: Line[] = [];
  #drawnLines = 0;
  #cursor: 'shown' | 'hidden' = 'shown';

  constructor(output: Output, look: Look) {
    this.#output = output;
    this.#look = look;
  }

  say(line: Line): void {
    this.#draw(`${paint(line, this.#look)}\n`);
  }

  show(progress: Progress, elapsedMs: number): void {
    this.#frame = frame(progress, elapsedMs, { ...this.#look, columns: this.#columns() });
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

  /** One write, so that no half of a frame is ever seen. */
  #draw(above: string): void {
    const up = this.#drawnLines === 0 ? '' : `\r\u001B[${this.#drawnLines}A${CLEAR_BELOW}`;
    const width = this.#columns() - 1;
    const lines = this.#frame.map((line) => `${paint(cut(line, width), this.#look)}\n`).join('');
    const hide = this.#cursor === 'shown' && lines !== '' ? HIDE_CURSOR : '';
    if (hide !== '') this.#cursor = 'hidden';
    this.#output.write(`${hide}${up}${above}${lines}`);
    this.#drawnLines = this.#frame.length;
  }
}

/** The part of the screen that is drawn in place: a bar, and a line for each worker. */
export function frame(progress: Progress, elapsedMs: number, look: Look & { columns: number }): Line[] {
  const workers = [...progress.workers.values()];
  return [[['']], barLine(progress, elapsedMs, look), ...workers.map(workerLine), [['']]];
}

function barLine(progress: Progress, elapsedMs: number, look: Look & { columns: number }): Line {
  const { ended, total } = progress;
  const room = look.columns - BAR_BESIDE_COLUMNS;
  const width = Math.max(BAR_MIN_COLUMNS, Math.min(BAR_MAX_COLUMNS, room));
  const filled = Math.floor((ended / total) * width);
  const [full, empty] = look.characters === 'unicode' ? ['█', '░'] : ['#', '.'];
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

/** A line about a moment: when, and what. */
export function event(elapsedMs: number, what: Line): Line {
  return [[`${seconds(elapsedMs).padStart(8)}  `, 'dim'], ...what];
}

export function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

/** 12345 as 12,345, whatever the machine's own habit is. */
export function count(value: number): string {
  return value.toLocaleString('en-US');
}

/** The line, no wider than this. */
export function cut(line: Line, width: number): Line {
  let room = Math.max(0, width);
  return line.flatMap(([text, tone]) => {
    const kept = text.slice(0, room);
    room -= kept.length;
    return kept === '' ? [] : [[kept, tone ?? 'plain'] as const];
  });
}
