/**
 * Sentences of a worker about itself that need no database.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { WorkerPort } from '../../contract/protocol.ts';
import { LOG_LIMITS } from './limits.ts';
import { explainLoss, type Loss } from './loss.ts';
import { WorkerLog } from './worker-log.ts';

function recorded(): { log: WorkerLog; said: [object, string | undefined][] } {
  const said: [object, string | undefined][] = [];
  const write = (facts: object, message?: string): void => void said.push([facts, message]);
  return { log: new WorkerLog({ debug: write, info: write, warn: write, error: write }), said };
}

describe('a stall of the event loop', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
  afterEach(() => void vi.useRealTimers());

  it('is reported from a limit on, and once in a while', () => {
    const { log, said } = recorded();
    log.eventLoop(LOG_LIMITS.stallMs - 1, 30_000);
    expect(said).toEqual([]);
    log.eventLoop(4_200, 30_000);
    log.eventLoop(9_000, 30_000);
    expect(said).toMatchObject([[{ delayMs: 4_200, leaseMs: 30_000 }, 'The event loop was blocked.']]);
    vi.advanceTimersByTime(LOG_LIMITS.stallEveryMs);
    log.eventLoop(5_000, 30_000);
    expect(said).toHaveLength(2);
  });
});

it('a start line names so many tasks and no more', () => {
  const { log, said } = recorded();
  const kinds = Array.from({ length: LOG_LIMITS.names + 5 }, (_, index) => `task-${index}`);
  log.started(
    {
      workerId: 'w',
      workerInstanceId: 'w-1',
      kinds,
      concurrency: 1,
      running: 0,
      uptimeMs: 0,
      stopping: false,
    },
    {} as WorkerPort,
  );
  const [[facts]] = said as [[{ tasks: string[]; lanes: null }, string]];
  expect(facts.tasks).toHaveLength(LOG_LIMITS.names + 1);
  expect(facts.tasks.at(-1)).toBe('… and 5 more');
  expect(facts).toMatchObject({ lanes: null, slots: 1 });
});

describe('why a lease was lost', () => {
  const untrusted: Loss = { code: 'lease_lost', refusal: undefined, unconfirmedMs: 24_500 };
  const refused = (refusal: Loss['refusal']): Loss => ({ code: 'lease_lost', refusal, unconfirmedMs: 10 });
  const ended = (terminalOutcome: 'expired' | 'failed' | 'success' | 'none'): Loss =>
    refused({ outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome, leaseEpoch: 1 });

  it.each<[string, Loss | undefined, number, object]>([
    [
      'the loop was blocked',
      untrusted,
      24_000,
      { why: expect.stringMatching(/24s of 30s, .*loop was blocked for 24s/) },
    ],
    [
      'nobody responded',
      untrusted,
      5,
      { why: expect.stringMatching(/24s of 30s, .*database did not respond/) },
    ],
    [
      'taken over',
      refused({ outcome: 'stale_lease', leaseEpoch: 2 }),
      0,
      { why: 'another worker has taken over' },
    ],
    ['deleted', refused({ outcome: 'not_found' }), 0, { why: 'the execution was deleted' }],
    ['expired', ended('expired'), 0, { outcome: 'expired' }],
    ['failed', ended('failed'), 0, { outcome: 'failed', why: 'it finished as failed' }],
    ['completed', ended('success'), 0, { outcome: 'success', why: 'it was completed' }],
    [
      'no longer running',
      ended('none'),
      0,
      { outcome: undefined, why: expect.stringMatching(/no longer running/) },
    ],
    ['unknown', undefined, 0, { why: expect.stringMatching(/could not be reported/) }],
  ])('%s', (_, loss, stalledMs, expected) => {
    expect(explainLoss(loss, 30_000, stalledMs)).toMatchObject(expected);
  });
});
