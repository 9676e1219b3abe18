/**
 * A full screen that is redrawn until somebody presses q or Ctrl-C: on the terminal's second screen, so that what was
 * there before is there again afterwards, however it ends. What is shown is decided elsewhere.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ReadStream } from 'node:tty';
import { columnsOf, paint, type Line, type Output, type Style } from './style.ts';

const ENTER = '\u001B[?1049h\u001B[?25l';
const LEAVE = '\u001B[?25h\u001B[?1049l';
const HOME = '\u001B[H';
const CLEAR_LINE = '\u001B[K';
const CLEAR_BELOW = '\u001B[J';
const CTRL_C = '\u0003';
/** A terminal that does not tell its height. */
const DEFAULT_ROWS = 24;

export type LiveOutput = Output & {
  rows?: number;
  on(event: 'resize', listener: () => void): unknown;
  off(event: 'resize', listener: () => void): unknown;
};

type Keys = Pick<ReadStream, 'isTTY' | 'setRawMode' | 'resume' | 'pause' | 'on' | 'off'>;

export interface Live {
  output: LiveOutput;
  input: Keys;
  style: Style;
  everyMs: number;
  /** Reads what is to be shown, and draws it for any size. */
  read(): Promise<(size: { columns: number; rows: number }) => Line[]>;
  /** Ctrl-C is no signal while keys are read one by one. */
  interrupt(): void;
  interrupted: AbortSignal;
  /** Whether what was read last is the end of it: then it returns by itself. */
  isOver?(): boolean;
}

/** Whether there is a terminal to draw on, and somebody who wants text. */
export function isLive({ columns, format }: { columns: number | null; format: string }): boolean {
  return columns !== null && format === 'text' && process.env['TERM'] !== 'dumb';
}

/** Returns when q was pressed, it was interrupted, or it is over. Errors of `read` end it, too. */
export async function showLive(live: Live): Promise<void> {
  const { output, input, interrupted } = live;
  const quit = new AbortController();
  const until = AbortSignal.any([quit.signal, interrupted]);
  const onKeys = (data: Buffer | string): void => {
    const keys = String(data);
    if (keys.includes(CTRL_C)) live.interrupt();
    else if (/q/i.test(keys)) quit.abort();
  };
  let draw: Awaited<ReturnType<Live['read']>> | undefined;
  const redraw = (): void => {
    if (draw !== undefined && !until.aborted) output.write(screenText(draw, live));
  };
  if (input.isTTY) input.setRawMode(true);
  input.on('data', onKeys);
  input.resume();
  output.on('resize', redraw);
  output.write(ENTER);
  try {
    while (!until.aborted) {
      draw = await Promise.race([live.read(), aborted(until)]);
      redraw();
      if (live.isOver?.()) break;
      await delay(live.everyMs, undefined, { signal: until }).catch(() => undefined);
    }
  } finally {
    output.write(LEAVE);
    output.off('resize', redraw);
    input.off('data', onKeys);
    if (input.isTTY) input.setRawMode(false);
    input.pause();
  }
}

/** Leaving does not wait for what is being read. */
function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
}

/** One write, so that a screen is never half drawn. */
function screenText(draw: Awaited<ReturnType<Live['read']>>, { output, style }: Live): string {
  const rows = output.rows || DEFAULT_ROWS;
  const lines = draw({ columns: columnsOf(output)!, rows }).slice(0, rows);
  return `${HOME}${lines.map((line) => `${paint(line, style)}${CLEAR_LINE}`).join('\r\n')}${CLEAR_BELOW}`;
}
