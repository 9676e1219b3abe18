/**
 * Valid calls of every verb of both faces, and the odd values put into them: what a JavaScript program may pass that no
 * type allows. Nothing is asserted here.
 */
import { workerPort, type Claim } from '../../src/protocol/index.ts';
import type { Connection } from '../../src/index.ts';

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

/** Created for each call, so that none sees what another did to them. */
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

/** A verb of the connection, of one of its groups, or (`worker.`) of the worker protocol. */
export type OddCall = readonly [verb: string, ...args: unknown[]];

/** Every verb of both faces, by its name in a call. */
export function verbsOf(engine: Connection): Map<string, (...args: unknown[]) => unknown> {
  const groups = Object.entries({ ...engine, worker: workerPort(engine) });
  const named = groups.flatMap(([noun, found]) =>
    typeof found === 'function'
      ? [[noun, found] as const]
      : Object.entries(found as object).map(([verb, call]) => [`${noun}.${verb}`, call] as const),
  );
  return new Map(named as [string, (...args: unknown[]) => unknown][]);
}

const NOTE = { reason: 'why', by: 'me' };
/** None of these exist, so that a valid call changes little. */
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
  delay: 3_600_000,
  policy: { retry: { maxRetries: 1 } },
  idempotencyKey: 'key',
};

interface Known {
  /** A current lease. */
  lease: Claim;
  /** The same lease as a worker that lost it has it: a valid call changes nothing. */
  lost: object;
  /** A finished execution: waiting for it returns at once. */
  ended: string;
}

function workCalls({ lease, lost, ended }: Known): OddCall[] {
  return [
    ['executions.submit', REQUEST, { hint: 'off' }],
    ['executions.submit', [REQUEST, { kind: 'k' }]],
    ['submit', { name: 'k', defaults: {} }, { a: [1] }, { priority: 1, delay: '1h', hint: 'off' }],
    ['executions.submit', { kind: 'k', key: 'order-1', ifExists: 'refuse', delay: 3_600_000 }],
    ['publish', 'packed', { a: [1] }, { namespace: 'n', keep: '1h' }],
    ['executions.byKey', 'order-1', { namespace: 'n' }],
    ['byKey', 'order-1', { namespace: 'n', task: { name: 'k', defaults: {} } }],
    ['submitMany', { name: 'k', defaults: {} }, [{ input: 1, priority: 1, delay: '1h' }]],
    [
      'worker.claim',
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
    ['worker.renew', [lease], 60_000],
    ['worker.complete', lost, { a: 1 }],
    ['worker.fail', lost, { message: 'm', category: 'c', retryAfterMs: 5 }],
    [
      'worker.fail',
      lost,
      { message: 'm', detail: { name: 'E', stack: 's', causes: [{ name: 'E', message: 'm', at: null }] } },
    ],
    ['worker.release', lost],
    ['worker.recordStep', lease, { name: 's', key: 'k', value: { a: [1] }, durationMs: 5 }],
    ['worker.recordStep', lease, { name: 'sleep', sleepMs: 5 }, {}],
    ['worker.readSteps', ID],
    ['worker.result', ID],
    ['worker.wait', ended, {}],
    ['worker.recordOrder', lease, { place: 0, ends: ['a', 'b'] }],
    ['worker.readOrder', ID],
    ['worker.pause', lost, { delayMs: 5, children: { ids: [ID], needed: 1 } }],
    ['worker.spawn', lost, [{ kind: 'k', detached: true }]],
    ['worker.readKeptChildren', ID],
    ['worker.cancelChild', lease, ID, NOTE],
    ['worker.describeChild', lease, ID, { include: ['steps'] }],
    ['worker.signalChild', lease, ID, 'w', { by: 'me', name: 'n', payload: { a: 1 }, idempotencyKey: 'k' }],
    ['worker.sendToChild', lease, ID, { mailbox: 'm', payload: { a: 1 }, id: 'i' }],
    ['worker.reportProgress', lease, { percent: 5, message: 'm' }],
  ];
}

function operatorCalls({ ended }: Known): OddCall[] {
  return [
    ['cancel', ID, NOTE],
    ['cancel', [ID], NOTE],
    ['executions.cancel', [ID], NOTE],
    ['executions.listSteps', ID],
    ['executions.revokeLease', ID, { ...NOTE, leaseId: UUID }],
    ['executions.describe', ID],
    ['executions.describe', ID, { include: ['input', 'steps', 'children', 'waits', 'timeline'] }],
    ['executions.result', ID],
    ['executions.wait', ended, {}],
    ['worker.fireTimers', { flows: 'leave' }],
    ['worker.watch', { kinds: ['k'], lanes: ['l'] }, () => false],
    [
      'worker.registerWorker',
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
    ['worker.forgetWorker', 'nobody'],
    ['executions.list', { filter: FILTER, limit: 5 }],
    [
      'executions.list',
      { filter: { states: ['failed'], failure: { category: 'c', contains: 'x' }, endedFromMs: 1 }, limit: 5 },
    ],
    ['executions.settled', { tags: { nobody: 'has-it' }, namespace: 'n' }],
    ['executions.find', '01890a5d'],
    ['executions.shorten', [ID]],
    ['executions.listAttempts', ID, { before: 5, limit: 5 }],
    ['executions.explain', ID],
    ['executions.replay', [ID], { ...NOTE, from: 'start' }],
    ['executions.replay', ID, { ...NOTE, fromStep: { name: 's', key: 'k' } }],
    ['executions.changePriority', ID, { ...NOTE, priority: 5 }],
    ['executions.setTags', ID, { ...NOTE, set: { a: 'b' }, remove: ['c'] }],
    ['lanes.list', { limit: 5 }],
    ['lanes.pause', 'odd', NOTE],
    ['lanes.resume', 'odd'],
    ['lanes.setEvents', 'odd', 'usual'],
    ['executions.bulk', { verb: 'cancel', ...NOTE, filter: FILTER, chunk: 5, dryRun: 'on' }],
  ];
}

function toldCalls({ lease, lost }: Known): OddCall[] {
  return [
    [
      'worker.createWaitpoint',
      lease,
      { name: 'w', expiresInMs: 60_000, schema: { type: 'object', properties: { a: { type: 'string' } } } },
    ],
    [
      'worker.suspend',
      lost,
      {
        waits: [{ name: 'w', condition: CONDITION, timeoutMs: 5, onTimeout: 'resume' }],
        waitpoints: [{ name: 'w' }],
      },
    ],
    [
      'waitpoints.issueToken',
      ID,
      'w',
      {
        expiresIn: 5,
        source: { type: 'user', identity: 'me' },
        signal: { name: 'go', payload: 1 },
        use: 'once',
        linkTo: 'https://example.org/',
      },
    ],
    ['waitpoints.revokeTokens', ID, 'w'],
    [
      'signal',
      {
        token: 'ffw1_x',
        name: 'go',
        payload: { a: 1 },
        source: { type: 'user', identity: 'me' },
        idempotencyKey: 'k',
      },
    ],
    ['waitpoints.approve', ID, 'w', { by: 'me', name: 'ok', payload: 1, idempotencyKey: 'k' }],
    ['waitpoints.list', { limit: 5 }],
    ['send', ID, 'in', { a: 1 }, { id: 'm' }],
    ['request', ID, 'in', { a: 1 }, { id: 'm', timeout: 5 }],
    ['worker.reply', lease, { name: 'inbox:in', key: '1', messageId: 'm', value: 1 }],
    ['worker.continueAs', lost, { n: 1 }],
    ['signingKeys.rotate', { grace: 5 }],
    ['signingKeys.revoke', 'nobody'],
  ];
}

function streamCalls({ lease, ended }: Known): OddCall[] {
  return [
    [
      'events.subscribe',
      {
        from: 'now',
        until: 'now',
        filter: { families: ['lease'], types: ['acquired'], kind: 'k', partitions: [1], tags: { a: 'b' } },
      },
    ],
    ['events.subscribeLeaseHistory', { until: 'now', filter: { executionId: ID } }],
    ['events.subscribeCompletions', { until: 'now' }],
    ['consumers.list'],
    ['consumers.move', 'nobody', 'now'],
    ['consumers.forget', 'nobody'],
    [
      'worker.appendFrames',
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
    ['worker.appendFrames', lease, [{ payload: { a: 1 }, mode: 'summary', encoding: 'json' }]],
    [
      'worker.appendFrames',
      lease,
      [
        {
          payload: { a: 1 },
          mode: 'summary',
          supersedes: '1-1',
          after: [{ name: 's', key: '' }],
          applied: new Uint8Array(Buffer.from('{}')),
        },
      ],
    ],
    ['worker.readWritten', lease],
    ['worker.readPatches', lease],
    ['worker.readParent', lease],
    [
      'worker.recordForParent',
      lease,
      { name: 's', key: 'k', value: 1, durationMs: 1 },
      [{ path: ['a'], by: 1 }],
    ],
    [
      'streams.read',
      ended,
      { attemptIndex: 0, from: 'start', to: 'end', limit: 5, direction: 'forward', visibility: 'all' },
    ],
    ['streams.tail', ended, { attemptIndex: 0, after: '0-0' }],
    ['streams.tailOnce', ended, { attemptIndex: 0, after: '0-0', block: 0, limit: 5 }],
    ['streams.readSummary', ended, { attemptIndex: 0 }],
    ['streams.watchSummary', ended, { attemptIndex: 0 }],
    ['streams.watch', ended, {}],
  ];
}

function flowCalls({ lost, ended }: Known): OddCall[] {
  return [
    [
      'flows.submit',
      { name: 'f', namespace: 'n', tags: { a: 'b' }, members: [{ name: 'a', kind: 'k' }, MEMBER] },
    ],
    ['worker.extendFlow', lost, [MEMBER]],
    ['flows.create', { name: 'f', flowId: FLOW, namespace: 'n', tags: { a: 'b' } }],
    ['flows.addMembers', FLOW, [{ name: 'n', kind: 'k' }], { expectedRevision: 99 }],
    ['flows.setJoin', FLOW, ID, { kind: 'any', n: 1 }],
    [
      'flows.stageEdges',
      FLOW,
      [{ upstream: ID, downstream: ended, on: 'success', as: 'x' }],
      { expectedRevision: 99 },
    ],
    ['flows.applyEdges', FLOW, [UUID]],
    ['flows.unstageEdges', FLOW, [UUID]],
    ['flows.seal', FLOW, { expectedRevision: 99 }],
    ['flows.cancel', FLOW, { ...NOTE, policy: 'cancel_all', wait: 'nothing' }],
    ['flows.describe', FLOW],
    ['flows.find', '01890a5d'],
    ['flows.list', { namespace: 'n', state: 'open', name: 'f', limit: 5 }],
  ];
}

export function callsOf(lease: Claim, ended: string): readonly OddCall[] {
  const known = { lease, lost: { ...lease, leaseEpoch: 99 }, ended };
  return [workCalls, operatorCalls, toldCalls, streamCalls, flowCalls].flatMap((calls) => calls(known));
}
