/**
 * How the lease of a running execution is described: when it expires, and when its owner seems to be gone.
 */
import { describe, expect, it } from 'vitest';
import { tellLease } from './running.ts';

function told(silentForMs: number | null): string {
  return tellLease({ workerInstanceId: 'w-1', expiresInMs: 13_000, silentForMs }, false);
}

describe('the owner of a lease', () => {
  it.each([0, 10_000, 15_000])('is believed to run it %i ms after its last heartbeat', (silentForMs) => {
    expect(told(silentForMs)).toBe(
      'Worker w-1 is running it; its lease expires in 13s unless the worker renews it.',
    );
  });

  it('is doubted when it has missed a heartbeat', () => {
    expect(told(17_000)).toBe(
      'Worker w-1 is running it, but has sent no heartbeat for 17s; its lease expires in 13s unless the worker renews it.',
    );
  });

  it('is doubted when it is not registered', () => {
    expect(told(null)).toBe(
      'Worker w-1 is running it, but is not registered; its lease expires in 13s unless the worker renews it.',
    );
  });
});
