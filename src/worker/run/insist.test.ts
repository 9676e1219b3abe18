/**
 * When a missing connection is waited for no longer.
 */
import { expect, it } from 'vitest';
import { ConnectionWaitOver, EngineError } from '../../contract/errors.ts';
import { insistOnConnection } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';

const lease = { isTrusted: () => true, signal: new AbortController().signal } as unknown as HeldLease;

it('is asked for again after a pool had none free in its own, short time', async () => {
  const reports: EngineError[] = [];
  let tries = 0;
  const call = async (): Promise<string> => {
    tries += 1;
    if (tries < 3) throw new EngineError('no_connection', 'The pool had none free within a second.');
    return 'connected';
  };
  expect(await insistOnConnection(lease, call, (error) => reports.push(error))).toBe('connected');
  expect(reports).toHaveLength(1);
});

it('is not asked for again after the longest wait there is', async () => {
  let tries = 0;
  const call = async (): Promise<never> => {
    tries += 1;
    throw new ConnectionWaitOver('All are taken.');
  };
  await expect(insistOnConnection(lease, call, () => undefined)).rejects.toThrow('All are taken.');
  expect(tries).toBe(1);
});
