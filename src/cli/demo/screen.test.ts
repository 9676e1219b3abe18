/**
 * The screen of the demo without a terminal: what is drawn, how wide, and in which colours. The numbers on it come from
 * the progress, which is tested here too.
 */
import { describe, expect, it } from 'vitest';
import { Progress } from './progress.ts';
import { cut, frame, openScreen } from './screen.ts';
import type { News } from './worker.ts';
import { styleFor, paint, type Line } from '../style.ts';

const NAMES = ['worker-1', 'worker-2'];

function news(parts: Partial<News>): News {
  const nothing = { held: [], completed: [], retried: [], takenOver: [], failed: [], foreign: 0 };
  return { type: 'news', ...nothing, ...parts };
}

function halfDone(): Progress {
  const progress = new Progress(4, NAMES);
  progress.hear('worker-1', news({ held: [3], completed: [1, 2] }));
  progress.gone('worker-2', 'killed');
  return progress;
}

function terminal(columns: number) {
  const written: string[] = [];
  return { isTTY: true, columns, write: (text: string) => written.push(text) > 0, written };
}

function textOf(lines: readonly Line[]): string[] {
  return lines.map((line) => paint(line, { colour: 'off', characters: 'ascii' }));
}

describe('the frame', () => {
  it('has a bar and a line for each worker, the killed one too', () => {
    const lines = textOf(frame(halfDone(), 1_500, { colour: 'off', characters: 'ascii', columns: 60 }));
    expect(lines).toEqual([
      '',
      '  #########.........  50 %  2 of 4  1.5 s',
      '  worker-1   1 running     2 completed    0 retried   0 taken over',
      '  worker-2      killed     0 completed    0 retried   0 taken over',
      '',
    ]);
  });

  it.each([20, 40, 80, 200])('is never wider than %d columns', (columns) => {
    const output = terminal(columns);
    openScreen(output, { NO_COLOR: '1', LANG: 'C' }).show(halfDone(), 0);
    // Cursor movements take no room; without colours they stand only before the empty first line.
    const lines = output.written.join('').split('\n').slice(1);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(columns);
  });

  it('is drawn over the previous frame, and permanent lines scroll above', () => {
    const output = terminal(80);
    const screen = openScreen(output, {});
    screen.show(halfDone(), 0);
    screen.say([['something happened']]);
    expect(output.written[1]?.startsWith('\r\u001B[5A\u001B[Jsomething happened\n')).toBe(true);
    screen.settle();
    expect(output.written.at(-1)).toBe('\u001B[?25h');
  });
});

describe('colours', () => {
  it.each([
    [true, {}, 'on'],
    [true, { NO_COLOR: '1' }, 'off'],
    [true, { NO_COLOR: '' }, 'on'],
    [true, { TERM: 'dumb' }, 'off'],
    [false, {}, 'off'],
  ] as const)('on a terminal (%s) with %j are %s', (isTTY, env, colour) => {
    expect(styleFor({ isTTY, write: () => true }, env).colour).toBe(colour);
  });

  it('are added after the line is cut, so that no code is cut in half', () => {
    const line = cut([['abc', 'good'], ['def', 'bad'], ['ghi']], 4);
    expect(paint(line, { colour: 'on', characters: 'ascii' })).toBe(
      '\u001B[32mabc\u001B[39m\u001B[31md\u001B[39m',
    );
  });
});

describe('progress', () => {
  it('notices when two workers completed the same execution', () => {
    const progress = halfDone();
    progress.hear('worker-2', news({ completed: [2] }));
    expect(progress).toMatchObject({ ended: 2, reportedTwice: 1 });
  });

  it('accepts a late report of what was found in the database', () => {
    const progress = new Progress(4, NAMES);
    progress.found(2);
    progress.hear('worker-1', news({ completed: [2] }));
    expect(progress).toMatchObject({ ended: 1, reportedTwice: 0 });
  });
});
