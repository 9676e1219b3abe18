/**
 * The live screen: drawn, drawn again when the terminal changes its size, and always left as it was found.
 */
import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { showLive, type Live } from './live-screen.ts';

const ENTER = '\u001B[?1049h\u001B[?25l';
const LEAVE = '\u001B[?25h\u001B[?1049l';

class Screen extends EventEmitter {
  isTTY = true as const;
  columns = 80;
  rows = 3;
  readonly written: string[] = [];

  write(text: string): boolean {
    this.written.push(text);
    this.emit('written', text);
    return true;
  }

  /** Resolves when something that contains the text is written. */
  shows(text: string): Promise<void> {
    return new Promise((resolve) => {
      const look = (written: string): void => {
        if (!written.includes(text)) return;
        this.off('written', look);
        resolve();
      };
      this.on('written', look);
    });
  }
}

class Keyboard extends EventEmitter {
  isTTY = true as const;
  readonly modes: boolean[] = [];
  state = 'paused';

  setRawMode(mode: boolean): this {
    this.modes.push(mode);
    return this;
  }

  resume(): this {
    this.state = 'read';
    return this;
  }

  pause(): this {
    this.state = 'paused';
    return this;
  }
}

function start(more: Partial<Live> = {}) {
  const [screen, keyboard, stop] = [new Screen(), new Keyboard(), new AbortController()];
  let reads = 0;
  const ended = showLive({
    output: screen as never,
    input: keyboard as never,
    style: { colour: 'off', characters: 'unicode' },
    everyMs: 1,
    interrupted: stop.signal,
    interrupt: () => stop.abort(),
    read() {
      reads += 1;
      const shown = `read ${reads}`;
      return Promise.resolve(({ columns, rows }) =>
        Array.from({ length: 5 }, () => [[`${shown} ${columns}x${rows}`]]),
      );
    },
    ...more,
  });
  return { screen, keyboard, stop, ended };
}

/** The cursor, the second screen and the keyboard are as they were. */
function expectLeft({ screen, keyboard }: { screen: Screen; keyboard: Keyboard }): void {
  expect(screen.written[0]).toBe(ENTER);
  expect(screen.written.at(-1)).toBe(LEAVE);
  expect(keyboard.modes).toEqual([true, false]);
  expect(keyboard.state).toBe('paused');
  expect(keyboard.listenerCount('data') + screen.listenerCount('resize')).toBe(0);
}

describe('the live screen', () => {
  it('is read and drawn again and again until q is pressed', async () => {
    const live = start();
    await live.screen.shows('read 3');
    live.keyboard.emit('data', Buffer.from('q'));
    await live.ended;
    expectLeft(live);
  });

  it('never has more lines than the terminal', async () => {
    const live = start();
    await live.screen.shows('read 1');
    live.keyboard.emit('data', 'q');
    await live.ended;
    expect(live.screen.written[1]!.split('\r\n')).toHaveLength(3);
  });

  it('is interrupted by Ctrl-C, which is no signal there', async () => {
    const live = start();
    await live.screen.shows('read 1');
    live.keyboard.emit('data', Buffer.from('\u0003'));
    await live.ended;
    expect(live.stop.signal.aborted).toBe(true);
    expectLeft(live);
  });

  it('is drawn anew when the terminal has another size', async () => {
    const live = start({ everyMs: 3_600_000 });
    await live.screen.shows('read 1 80x3');
    const resized = live.screen.shows('read 1 40x2');
    Object.assign(live.screen, { columns: 40, rows: 2 });
    live.screen.emit('resize');
    await resized;
    live.stop.abort();
    await live.ended;
    expectLeft(live);
  });

  it('is left when reading fails, with the error', async () => {
    const live = start({ read: () => Promise.reject(new Error('gone')) });
    await expect(live.ended).rejects.toThrow('gone');
    expectLeft(live);
  });

  it('is left by itself after what is the end of it was drawn', async () => {
    const live = start({ everyMs: 3_600_000, isOver: () => true });
    await live.ended;
    expect(live.screen.written[1]).toContain('read 1');
    expectLeft(live);
  });

  it('is left at once while something is being read', async () => {
    const live = start({ read: () => new Promise(() => undefined) });
    live.keyboard.emit('data', 'q');
    await live.ended;
    expectLeft(live);
  });
});
