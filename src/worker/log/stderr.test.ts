/**
 * How entries and the lines of handlers are written to stderr.
 */
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Entry } from './entry.ts';
import { LOG_LIMITS } from './limits.ts';
import { StderrLog } from './stderr.ts';

const ESCAPE = '\u001B';
const ENTRY: Entry = {
  level: 'warn',
  msg: 'The attempt failed.',
  fields: { kind: 'charge' },
  text: 'charge failed',
};
const ABOUT = { executionId: '{fp:7}:01a1e5dd-9a90-720a-b502-6b2d3c4bc32f', kind: 'charge', attemptIndex: 0 };

/** A log, and what it has written. */
function open(isTTY: boolean, env: NodeJS.ProcessEnv = {}): { log: StderrLog; written: () => string } {
  let text = '';
  const output = new Writable({
    write(chunk, _, done) {
      text += String(chunk);
      done();
    },
  });
  Object.assign(output, { isTTY });
  return { log: new StderrLog(output as never, env), written: () => text };
}

function parsed(text: string): Record<string, unknown>[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

describe('on a terminal', () => {
  it('a line has the time, the level and the text, in colour', () => {
    const { log, written } = open(true);
    log.write(ENTRY);
    expect(written()).toMatch(new RegExp(`^${ESCAPE}\\[2m\\d\\d:\\d\\d:\\d\\d.*33mwarn .*charge failed\\n$`));
  });

  it.each([{ NO_COLOR: '1' }, { TERM: 'dumb' }])('there is no colour with %o', (env) => {
    const { log, written } = open(true, env);
    log.write(ENTRY);
    expect(written()).toMatch(/^\d\d:\d\d:\d\d warn {2}charge failed\n$/);
  });

  it('what a handler logs begins with its task and short id, and ends with its fields', () => {
    const { log, written } = open(true, { NO_COLOR: '1' });
    log.info({ ...ABOUT, pages: 3, err: new RangeError('too far') }, 'half done');
    log.info(ABOUT, '100 %s');
    expect(written()).toMatch(
      /charge 01a1e5dd-9a90-720a-b502 half done \{ pages: 3, err: 'RangeError: too far' \}\n.*charge 01a1e5dd-9a90-720a-b502 100 %s\n/,
    );
  });

  it('text of others stays on its line and cannot move the cursor', () => {
    const { log, written } = open(true, { NO_COLOR: '1' });
    log.warn(ABOUT, `two\nlines${ESCAPE}[2J`);
    expect(written()).toMatch(/two lines \[2J\n$/);
  });
});

describe('elsewhere', () => {
  it('a line is JSON: time, level, msg and fields', () => {
    const { log, written } = open(false);
    log.write(ENTRY);
    expect(parsed(written())).toEqual([
      {
        time: expect.stringMatching(/^\d{4}-.*Z$/),
        level: 'warn',
        msg: 'The attempt failed.',
        kind: 'charge',
      },
    ]);
  });

  it('an error in the fields is its class, message and place: never its toJSON, which may contain a request', () => {
    const { log, written } = open(false);
    const err = Object.assign(new TypeError('no'), {
      toJSON: () => ({ headers: { authorization: 'secret' } }),
    });
    log.error({ ...ABOUT, err, deep: { err } }, 'it failed');
    const shown = { name: 'TypeError', message: 'no' };
    expect(parsed(written())).toMatchObject([{ ...ABOUT, level: 'error', err: shown, deep: { err: shown } }]);
    expect(written()).not.toContain('secret');
  });

  it('passwords and tokens are masked', () => {
    const { log, written } = open(false);
    log.info({ ...ABOUT, url: 'postgres://app:hunter2@db/app' }, 'with ffw1_abcdef0123');
    expect(written()).not.toMatch(/hunter2|abcdef/);
  });

  it.each<[string, object]>([
    ['too long', { text: Array.from({ length: 100 }, () => 'x'.repeat(400)) }],
    ['no JSON', { amount: 1n }],
  ])('fields that are %s are left out, and the line stays', (_, facts) => {
    const { log, written } = open(false);
    log.info({ ...ABOUT, ...facts }, 'm'.repeat(10_000));
    expect(written().length).toBeLessThan(LOG_LIMITS.line);
    expect(parsed(written())).toMatchObject([{ ...ABOUT, leftOut: 'fields' }]);
  });
});

it('debug lines are not written', () => {
  const { log, written } = open(false);
  log.debug(ABOUT, 'detail');
  expect(written()).toBe('');
});

it('a stream that fails does not fail the work', async () => {
  const output = new Writable({
    write(_, __, done) {
      done(new Error('EPIPE'));
    },
  });
  const closed = new Promise((resolve) => {
    output.once('close', resolve);
  });
  // An error event without a listener would end the process.
  new StderrLog(output as never, {}).write(ENTRY);
  await closed;
  expect(output.errored).toMatchObject({ message: 'EPIPE' });
});

describe('a flood of equal entries', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
  afterEach(() => void vi.useRealTimers());

  const failing = (sameAs: string): Entry => ({ ...ENTRY, sameAs });

  it('is cut off, and counted when the window is over', () => {
    const { log, written } = open(true, { NO_COLOR: '1' });
    for (let index = 0; index < LOG_LIMITS.floodLines + 412; index += 1) log.write(failing('a'));
    log.write(failing('b'));
    expect(written().trimEnd().split('\n')).toHaveLength(LOG_LIMITS.floodLines + 1);
    vi.advanceTimersByTime(LOG_LIMITS.floodWindowMs);
    expect(written()).toMatch(/warn {2}… and 412 more in the last 10s like this: charge failed\n$/);
    log.write(failing('a'));
    expect(written()).toMatch(/\d warn {2}charge failed\n$/);
  });

  it('is counted in JSON too, and when the worker stops before the window is over', () => {
    const { log, written } = open(false);
    for (let index = 0; index < LOG_LIMITS.floodLines + 2; index += 1) log.write(failing('a'));
    vi.advanceTimersByTime(3_000);
    log.close();
    expect(parsed(written()).at(-1)).toMatchObject({
      level: 'warn',
      msg: 'Lines were left out.',
      count: 2,
      windowMs: 3_000,
      of: 'The attempt failed.',
      kind: 'charge',
    });
    expect(vi.getTimerCount()).toBe(0);
  });

  it('of too many different entries is cut off as a whole', () => {
    const { log, written } = open(true, { NO_COLOR: '1' });
    for (let index = 0; index < LOG_LIMITS.floodKinds + 50; index += 1) log.write(failing(`kind ${index}`));
    log.close();
    expect(written().split('\n').length).toBeLessThanOrEqual(
      LOG_LIMITS.floodKinds + LOG_LIMITS.floodLines + 2,
    );
    expect(written()).toMatch(/… and 45 more in the last 1s of other kinds\n$/);
  });

  it('may have a smaller limit of its own', () => {
    const { log, written } = open(false);
    log.write({ ...failing('a'), most: 1 });
    log.write({ ...failing('a'), most: 1 });
    expect(parsed(written())).toHaveLength(1);
  });
});
