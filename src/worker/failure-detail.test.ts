/**
 * What is kept of an error: its class, own frames first, its causes; and nothing that is secret or without end.
 */
import { describe, expect, it } from 'vitest';
import { EngineError } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';
import { detailOf } from './failure-detail.ts';

class CardDeclined extends Error {}

function withStack(error: Error, ...frames: string[]): Error {
  error.stack = `${error.name}: ${error.message}\n${frames.map((frame) => `    at ${frame}`).join('\n')}`;
  return error;
}

describe('the detail of a failure', () => {
  it('has the class of the error and the frames of its stack, own ones first', () => {
    const frames = ['parse (/srv/app/node_modules/zod/index.js:1:1)', 'charge (/srv/app/pay.js:8:5)'];
    expect(detailOf(withStack(new CardDeclined('no money'), ...frames))).toEqual({
      name: 'CardDeclined',
      stack: `at ${frames[1]}\nat ${frames[0]}`,
      causes: [],
    });
  });

  it('has the chain of causes, each with the place it comes from', () => {
    const root = withStack(new RangeError('port 99999'), 'dial (/srv/app/net.js:3:7)');
    const middle = withStack(new Error('connect failed', { cause: root }), 'node:net:1:1');
    expect(detailOf(new CardDeclined('no answer', { cause: middle }))!.causes).toEqual([
      { name: 'Error', message: 'connect failed', at: null },
      { name: 'RangeError', message: 'port 99999', at: '/srv/app/net.js:3:7' },
    ]);
  });

  it('ends where causes form a circle', () => {
    const [one, other] = [new Error('one'), new Error('other')];
    one.cause = other;
    other.cause = one;
    expect(detailOf(one)!.causes).toHaveLength(LIMITS.failureCauses);
  });

  it('leaves out what may quote data: the message in the stack, and causes of the engine', () => {
    const message = 'bad row:\n    at {"iban":"DE00"}';
    const error = withStack(new Error(message), 'work (/srv/app/work.js:1:1)');
    expect(detailOf(error)!.stack).toBe('at work (/srv/app/work.js:1:1)');
    const refused = new EngineError('invalid_input', 'step.value', { cause: new Error('secret data') });
    expect(detailOf(refused)!.causes).toEqual([]);
  });

  it('masks passwords', () => {
    const cause = new Error('cannot reach postgres://app:hunter2@db/app');
    const { causes } = detailOf(new Error('no', { cause }))!;
    expect(causes[0]!.message).toBe('cannot reach postgres://app:***@db/app');
  });

  it('keeps whole frames of a stack that is too large', () => {
    const frames = Array.from({ length: 400 }, (_, n) => `rückruf${n} (/srv/app/deep/work.js:${n}:1)`);
    const { stack } = detailOf(withStack(new Error('deep'), ...frames))!;
    const kept = stack.split('\n');
    expect(Buffer.byteLength(stack)).toBeLessThanOrEqual(LIMITS.failureDetailBytes);
    expect(kept.length).toBeGreaterThan(100);
    expect(kept).toEqual(frames.slice(0, kept.length).map((frame) => `at ${frame}`));
  });

  it.each([
    ['a string', 'text'],
    ['nothing', undefined],
  ])('is none of %s', (_, thrown) => {
    expect(detailOf(thrown)).toBeUndefined();
  });

  it('survives an error that cannot be read', () => {
    const odd = Object.defineProperty(new Error('x'), 'stack', {
      get() {
        throw new Error('no');
      },
    });
    expect(detailOf(odd)).toBeUndefined();
  });
});
