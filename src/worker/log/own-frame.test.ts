/**
 * Which frame of a stack is the user's own.
 */
import { describe, expect, it } from 'vitest';
import { ownFrame } from './own-frame.ts';

/** FlowFabric's own folder is the one above this file's. */
const OWN = new URL('../../', import.meta.url).href;

function withStack(...frames: string[]): Error {
  return Object.assign(new Error('no'), {
    stack: ['Error: no', ...frames.map((at) => `    at ${at}`)].join('\n'),
  });
}

describe('the first own frame', () => {
  it.each<[string, string[], string | undefined]>([
    [
      'of a function in a file with a URL',
      ['work (file:///srv/app/worker.js:8:56)'],
      '/srv/app/worker.js:8:56',
    ],
    ['without a function', ['file:///srv/app/worker.js:8:56'], '/srv/app/worker.js:8:56'],
    ['of an async function', ['async Object.work (/srv/app/worker.cjs:8:56)'], '/srv/app/worker.cjs:8:56'],
    ['in a path with blanks and brackets', ['work (/srv/my (app)/a.js:1:2)'], '/srv/my (app)/a.js:1:2'],
    [
      'beside evaluated code',
      ['eval (eval at work (/srv/a.js:1:2), <anonymous>:1:1)', '/srv/b.js:3:4'],
      '/srv/b.js:3:4',
    ],
    [
      'after those of Node, of packages and of FlowFabric',
      [
        'JSON.parse (<anonymous>)',
        'node:internal/process/task_queues:105:5',
        'parse (file:///srv/app/node_modules/zod/index.js:1:1)',
        `step (${OWN}worker/run/run-step.js:1:1)`,
        'async file:///srv/app/src/tasks.ts:12:3',
        'async file:///srv/app/src/main.ts:1:1',
      ],
      '/srv/app/src/tasks.ts:12:3',
    ],
    ['that does not exist', ['node:fs:1:1', 'new Promise (<anonymous>)'], undefined],
    ['below the working directory', [`work (file://${process.cwd()}/app/a.ts:1:2)`], 'app/a.ts:1:2'],
  ])('%s', (_, frames, expected) => {
    expect(ownFrame(withStack(...frames))).toBe(expected);
  });

  it('is cut, however long its path is', () => {
    expect(ownFrame(withStack(`/${'x'.repeat(900)}.ts:1:2`))!.length).toBeLessThan(220);
  });

  it.each([
    ['a value that is no error', 'text'],
    ['an error without a stack', Object.assign(new Error('x'), { stack: undefined })],
    [
      'a stack that cannot be read',
      Object.defineProperty(new Error('x'), 'stack', {
        get() {
          throw new Error('no');
        },
      }),
    ],
  ])('is none of %s', (_, thrown) => {
    expect(ownFrame(thrown)).toBeUndefined();
  });
});
