/**
 * Calls of every verb of a connection, right as they stand, and the odd values that are put into them: what a program in JavaScript may
 * give that no type allows. Nothing is judged here.
 */
import type { Claim, Connection } from '../../src/index.ts';

/** Thrown by values that throw; a call that is refused because of one has it as its cause. */
export class ThrownByValue extends Error {}

function throwing(): never {
  throw new ThrownByValue('thrown by a value');
}

const THROWS = new Proxy(
  {},
  {
    get: throwing,
    has: throwing,
    ownKeys: throwing,
    getOwnPropertyDescriptor: throwing,
    getPrototypeOf: throwing,
  },
);

function holed(): unknown[] {
  const list: unknown[] = [];
  list[2] = 'x';
  return list;
}

function cyclic(): object {
  const value: Record<string, unknown> = {};
  value['self'] = value;
  return value;
}

function throwingMember(): object {
  return Object.defineProperty({}, 'kind', { get: throwing, enumerable: true });
}

const HUGE = 'x'.repeat(2_000_000);

/** Made anew for each call, so that none sees what another did to them. */
export const ODD: readonly (() => unknown)[] = [
  () => null,
  () => undefined,
  () => Number.NaN,
  () => Infinity,
  () => -1,
  () => 0,
  () => -0,
  () => 5e-324,
  () => 1.5,
  () => 2 ** 53,
  () => 1e308,
  () => 10n,
  () => 2n ** 70n,
  () => true,
  () => '',
  () => ' ',
  () => 'x',
  () => '\u0000',
  () => '\uD800',
  () => '\u009B31m\u202E',
  () => '__proto__',
  () => '{fp:1}:not-a-uuid',
  () => HUGE,
  () => Symbol('odd'),
  () => () => 'a function',
  () => throwing,
  () => [],
  () => holed(),
  () => Array.from({ length: 3 }),
  () => [[[]]],
  () => ({}),
  () => Object.create(null) as object,
  () => ({ __proto__: null, toString: throwing }),
  () => JSON.parse('{"__proto__": {"a": 1}}') as object,
  () => ({ toJSON: throwing }),
  () => ({ [Symbol.toPrimitive]: throwing }),
  () => cyclic(),
  () => throwingMember(),
  () => THROWS,
  () => new Proxy([], { get: throwing }),
  () => new Date(Number.NaN),
  () => new Map([['a', 1]]),
  () => new Uint8Array(3),
  () => /(a+)+$/,
  () => new Error('an error'),
  () => Object('boxed') as object,
  () => Promise.resolve('later'),
];

export type OddCall = readonly [verb: keyof Connection, ...args: unknown[]];

const NOTE = { reason: 'why', by: 'me' };
/** None of these exist, so that a right call changes little. */
const ID = '{fp:3}:018f0000-0000-7000-8000-00000000000a';
const FLOW = '{fp:3}:018f0000-0000-7000-8000-00000000000b';
const UUID = '018f0000-0000-7000-8000-00000000000c';
const CONDITION = { kind: 'count', n: 1, by: 'signals', waitpoints: ['w'], match: 'go' };

const FILTER = { states: ['waiting'], kind: 'nobody', lane: 'l', namespace: 'n', tags: { a: 'b' } };
const MEMBER = {
  name: 'm',
  kind: 'k',
  payload: [1],
  after: [{ from: 'a', on: 'success', as: 'x' }],
  join: { kind: 'all' },
};
const REQUEST = {
  kind: 'k',
  payload: { deep: [1, { a: null }] },
  lane: 'l',
  namespace: 'n',
  priority: 1,
  tags: { a: 'b' },
  capabilities: ['cpu'],
  delayMs: 3_600_000,
  policy: { retry: { maxRetries: 1 } },
  idempotencyKey: 'key',
};

interface Known {
  /** Held. */
  lease: Claim;
  /** The same, as somebody has it who lost it: what is right changes nothing. */
  lost: object;
  /** An execution that has ended: nobody waits for it. */
  ended: string;
}

function workCalls({ lease, lost }: Known): OddCall[] {
  return [
    ['submit', REQUEST, { hint: 'off' }],
    ['submit', [REQUEST, { kind: 'k' }]],
    ['submitMany', { name: 'k', defaults: {} }, [{ input: 1, priority: 1, delay: '1h' }]],
    [
      'claim',
      {
        workerId: 'w',
        workerInstanceId: 'w',
        kinds: ['nobody'],
        lanes: ['l'],
        capabilities: ['c'],
        limit: 1,
        leaseMs: 60_000,
      },
    ],
    ['renew', [lease], 60_000],
    ['complete', lost, { a: 1 }],
    ['fail', lost, { message: 'm', category: 'c', retryAfterMs: 5 }],
    ['release', lost],
    ['recordStep', lease, { name: 's', key: 'k', value: { a: [1] } }],
    ['recordStep', lease, { name: 'sleep', sleepMs: 5 }, {}],
    ['readSteps', ID],
    ['recordOrder', lease, { place: 0, ends: ['a', 'b'] }],
    ['readOrder', ID],
    ['pause', lost, { delayMs: 5, children: { ids: [ID], needed: 1 } }],
    ['spawn', lost, [{ kind: 'k' }]],
    ['reportProgress', lease, { percent: 5, message: 'm' }],
  ];
}

function operatorCalls({ ended }: Known): OddCall[] {
  return [
    ['cancel', ID, NOTE],
    ['cancel', [ID], NOTE],
    ['revokeLease', ID, { ...NOTE, leaseId: UUID }],
    ['describe', ID],
    ['result', ID],
    ['waitForEnd', ended, {}],
    ['fireTimers', { flows: 'leave' }],
    ['watch', { kinds: ['k'], lanes: ['l'] }, () => false],
    [
      'registerWorker',
      {
        workerInstanceId: 'w',
        workerId: 'w',
        version: '1',
        kinds: ['k'],
        lanes: ['l'],
        concurrency: 1,
        running: 0,
        uptimeMs: 0,
        stopping: false,
      },
    ],
    ['forgetWorker', 'nobody'],
    ['list', { filter: FILTER, limit: 5 }],
    [
      'list',
      { filter: { states: ['failed'], failure: { category: 'c', contains: 'x' }, endedFromMs: 1 }, limit: 5 },
    ],
    ['listAttempts', ID, { before: 5, limit: 5 }],
    ['explain', ID],
    ['replay', [ID], { ...NOTE, from: 'start' }],
    ['changePriority', ID, { ...NOTE, priority: 5 }],
    ['setTags', ID, { ...NOTE, set: { a: 'b' }, remove: ['c'] }],
    ['listLanes', { limit: 5 }],
    ['pauseLane', 'odd', NOTE],
    ['resumeLane', 'odd'],
    ['bulk', { verb: 'cancel', ...NOTE, filter: FILTER, chunk: 5, dryRun: 'on' }],
  ];
}

function toldCalls({ lease, lost }: Known): OddCall[] {
  return [
    [
      'createWaitpoint',
      lease,
      { name: 'w', expiresInMs: 60_000, schema: { type: 'object', properties: { a: { type: 'string' } } } },
    ],
    [
      'suspend',
      lost,
      {
        waits: [{ name: 'w', condition: CONDITION, timeoutMs: 5, onTimeout: 'resume' }],
        waitpoints: [{ name: 'w' }],
      },
    ],
    [
      'issueToken',
      ID,
      'w',
      {
        expiresInMs: 5,
        source: { type: 'user', identity: 'me' },
        signal: { name: 'go', payload: 1 },
        use: 'once',
        linkTo: 'https://example.org/',
      },
    ],
    ['revokeTokens', ID, 'w'],
    [
      'deliverSignal',
      {
        token: 'ffw1_x',
        name: 'go',
        payload: { a: 1 },
        source: { type: 'user', identity: 'me' },
        idempotencyKey: 'k',
      },
    ],
    ['approve', ID, 'w', { by: 'me', name: 'ok', payload: 1, idempotencyKey: 'k' }],
    ['listWaitpoints', { limit: 5 }],
    ['rotateSigningKey', { graceMs: 5 }],
    ['revokeSigningKey', 'nobody'],
  ];
}

function streamCalls({ lease, ended }: Known): OddCall[] {
  return [
    [
      'subscribeEvents',
      {
        from: 'now',
        until: 'now',
        filter: { families: ['lease'], types: ['acquired'], kind: 'k', partitions: [1], tags: { a: 'b' } },
      },
    ],
    ['subscribeLeaseHistory', { until: 'now', filter: { executionId: ID } }],
    ['subscribeCompletions', { until: 'now' }],
    ['listConsumers'],
    ['moveConsumer', 'nobody', 'now'],
    ['forgetConsumer', 'nobody'],
    [
      'appendFrames',
      lease,
      [
        {
          payload: 'text',
          mode: 'durable',
          frameType: 'event',
          correlationId: 'c',
          step: { name: 's', key: '', tryIndex: 0 },
        },
      ],
      {},
    ],
    ['appendFrames', lease, [{ payload: { a: 1 }, mode: 'summary', encoding: 'json' }]],
    [
      'readStream',
      ended,
      { attemptIndex: 0, from: 'start', to: 'end', limit: 5, direction: 'forward', visibility: 'all' },
    ],
    ['tailStream', ended, { attemptIndex: 0, after: '0-0' }],
    ['tailOnce', ended, { attemptIndex: 0, after: '0-0', blockMs: 0, limit: 5 }],
    ['readSummary', ended, { attemptIndex: 0 }],
    ['watchSummary', ended, { attemptIndex: 0 }],
  ];
}

function flowCalls({ lost, ended }: Known): OddCall[] {
  return [
    [
      'submitFlow',
      { name: 'f', namespace: 'n', tags: { a: 'b' }, members: [{ name: 'a', kind: 'k' }, MEMBER] },
    ],
    ['extendFlow', lost, [MEMBER]],
    ['createFlow', { name: 'f', flowId: FLOW, namespace: 'n', tags: { a: 'b' } }],
    ['addMembers', FLOW, [{ name: 'n', kind: 'k' }], { expectedRevision: 99 }],
    ['setJoin', FLOW, ID, { kind: 'any', n: 1 }],
    [
      'stageEdges',
      FLOW,
      [{ upstream: ID, downstream: ended, on: 'success', as: 'x' }],
      { expectedRevision: 99 },
    ],
    ['applyEdges', FLOW, [UUID]],
    ['unstageEdges', FLOW, [UUID]],
    ['sealFlow', FLOW, { expectedRevision: 99 }],
    ['cancelFlow', FLOW, { ...NOTE, policy: 'cancel_all', wait: 'nothing' }],
    ['describeFlow', FLOW],
    ['listFlows', { namespace: 'n', state: 'open', name: 'f', limit: 5 }],
  ];
}

export function callsOf(lease: Claim, ended: string): readonly OddCall[] {
  const known = { lease, lost: { ...lease, leaseEpoch: 99 }, ended };
  return [workCalls, operatorCalls, toldCalls, streamCalls, flowCalls].flatMap((calls) => calls(known));
}
