/**
 * Which errors of handlers are permanent, and which may pass.
 */
import { AssertionError } from 'node:assert';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ExecutionFailed } from '../contract/errors.ts';
import { TaskFailed, toFailure } from './task.ts';

function caught(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}

const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
const circle = new TypeError('circle');
circle.cause = circle;

describe('an error of the program itself is permanent', () => {
  it.each<[string, unknown]>([
    ['a property of null', caught(() => (null as unknown as { name: string }).name)],
    ['a name that does not exist', new ReferenceError('x is not defined')],
    ['text that is not JSON', caught(() => JSON.parse('<html>') as unknown)],
    ['a number out of range', caught(() => 'x'.repeat(-1))],
    ['a malformed URI', caught(() => decodeURIComponent('%'))],
    ['a failed assertion', new AssertionError({ message: 'no' })],
    ['a value that does not match its schema', caught(() => z.string().parse(1))],
    [
      'a URL that cannot be parsed, inside the error of a request',
      errorOf('failed', new TypeError('Invalid URL')),
    ],
    ['a child that failed', new ExecutionFailed('{fp:1}:x', { outcome: 'failed' } as never)],
  ])('%s', (_, error) => {
    expect(error).toBeInstanceOf(Error);
    expect(toFailure(error)).toMatchObject({ category: 'permanent' });
    expect(toFailure(error)).not.toHaveProperty('retry');
  });
});

function errorOf(message: string, cause: unknown): TypeError {
  return new TypeError(message, { cause });
}

describe('nothing is inferred from', () => {
  it.each<[string, unknown]>([
    ['any other error', new Error('the disk is full')],
    ['a request that found nobody', errorOf('fetch failed', refused)],
    ['causes that form a circle', circle],
    ['a cause that is not an error', errorOf('fetch failed', 'gone')],
    ['a value that is not an error', 'only text'],
    ['an error that cannot be read', unreadable()],
  ])('%s', (_, error) => {
    expect(toFailure(error)).not.toHaveProperty('category');
  });

  it('an error whose author gave a category', () => {
    const failure = toFailure(new TaskFailed('busy', { category: 'declined' }));
    expect(failure).toMatchObject({ message: 'busy', category: 'declined' });
  });
});

function unreadable(): Error {
  return Object.defineProperty(new Error('odd'), 'name', {
    get() {
      throw new Error('no');
    },
  });
}
