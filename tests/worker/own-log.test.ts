/**
 * A worker with a log of the user's own, in all forms that are accepted, and some that are not.
 */
import { describe, expect, test, vi } from 'vitest';
import { startWorker } from '../../src/connect/worker.ts';
import type { Logger } from '../../src/define/task-context.ts';
import { AGAIN, newKind, plain, SOON, useCrew } from './crew.ts';
import { useStderr } from './stderr-lines.ts';

const crew = useCrew();
const stderr = useStderr();

describe('a log of your own', () => {
  function recorder(): { log: Logger; said: [string, object, string | undefined][] } {
    const said: [string, object, string | undefined][] = [];
    const level = (name: string) => (facts: object, message?: string) =>
      void said.push([name, facts, message]);
    return {
      said,
      log: { debug: level('debug'), info: level('info'), warn: level('warn'), error: level('error') },
    };
  }

  test('gets what the worker and its handlers say, and stderr gets nothing', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const { log, said } = recorder();
    const thrown = new Error('no');
    crew.work(engine, {
      log,
      handlers: {
        [kind]: ({ log: own }) => {
          own.info('only text');
          own.debug({ pages: 3 }, 'with fields');
          throw thrown;
        },
      },
    });
    const { executionId } = await engine.executions.submit({ kind });
    const facts = { executionId, kind, attemptIndex: 0 };
    await expect
      .poll(() => said.slice(1), SOON)
      .toMatchObject([
        ['info', facts, 'only text'],
        ['debug', { ...facts, pages: 3 }, 'with fields'],
        [
          'error',
          { ...facts, err: thrown, attempt: 1, maxAttempts: 1 },
          'The attempt failed, and is not retried.',
        ],
      ]);
    expect(said[0]).toMatchObject(['info', { tasks: [kind], slots: 10 }, 'Worker started.']);
    expect(stderr.text()).not.toContain(kind);
  });

  test('may throw: the work is done nevertheless', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const fail = (): never => {
      throw new Error('the disk is full');
    };
    crew.work(engine, {
      log: { debug: fail, info: fail, warn: fail, error: fail },
      handlers: {
        [kind]: ({ attemptIndex, log: own }) => {
          own.warn('careful');
          if (attemptIndex === 0) throw new Error('once');
          return 'done';
        },
      },
    });
    const { executionId } = await engine.executions.submit({ kind, policy: AGAIN });
    expect(await engine.executions.wait(executionId)).toMatchObject({ outcome: 'success', result: 'done' });
  });

  test('may be the console, or silent', async () => {
    const engine = await crew.connect();
    const info = vi.spyOn(console, 'info').mockImplementation(() => undefined);
    crew.work(engine, { log: console, handlers: { [newKind()]: () => 1 } });
    expect(info).toHaveBeenCalledOnce();
    crew.work(engine, { log: 'silent', handlers: { [newKind()]: () => 1 } });
    expect(stderr.lines()).toEqual([]);
  });

  test.each([
    ['a word', 'quiet'],
    ['nothing', null],
    ['half a logger', { info: () => undefined }],
  ])('is refused if it is %s', async (_, log) => {
    const engine = await crew.connect();
    const handlers = plain({ [newKind()]: () => 1 });
    expect(() => startWorker(engine, { log: log as never, handlers })).toThrow(
      "log must be 'silent', or a logger with the functions debug, info, warn and error.",
    );
  });
});
