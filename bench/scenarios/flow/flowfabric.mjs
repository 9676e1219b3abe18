/**
 * Ours, through the public interface: the whole flow is one submitFlow, sent over a connection without a worker. Runs
 * in a seat.
 */
import { connect, handle, startWorker, task } from '../../../dist/index.js';
import { fired } from './desk.mjs';

const KIND = 'bench';

function member(name, payload, more = {}) {
  return { name, kind: KIND, payload, ...more };
}

function branches(n, size, more) {
  return Array.from({ length: size }, (_, i) => member(`branch-${i}`, { n, i, role: 'branch' }, more));
}

const MEMBERS = {
  chain: (n, size) =>
    Array.from({ length: size }, (_, i) =>
      member(
        `member-${i}`,
        { n, i, role: i === size - 1 ? 'end' : 'link' },
        i === 0 ? {} : { after: [`member-${i - 1}`] },
      ),
    ),
  all: (n, size) => {
    const middle = branches(n, size, { after: ['root'] });
    return [
      member('root', { n, role: 'root' }),
      ...middle,
      member('join', { n, role: 'end' }, { after: middle.map(({ name }) => name) }),
    ];
  },
  any: (n, size) => {
    const racers = branches(n, size);
    const after = racers.map(({ name }) => name);
    return [...racers, member('join', { n, role: 'end' }, { after, join: { kind: 'any' } })];
  },
};

async function race(desk, { n, i }, signal) {
  desk.tell(n, 'begun');
  if (i === 0) {
    await desk.seen(n, 'go');
    return desk.tell(n, 'over');
  }
  await fired(signal);
  desk.tell(n, 'stopped');
  throw signal.reason;
}

/** @returns {Promise<import('./desk.mjs').Flows>} */
export async function openFlows({ target, settings, shape }, desk) {
  const { kind, size } = shape;
  const engine = await connect({ databaseUrl: target.url });
  const work = async (input, ctx) => {
    const { n, role } = input;
    if (role === 'end') desk.tell(n, 'end');
    else if (role === 'root') desk.tell(n, 'over');
    else if (kind === 'any') await race(desk, input, ctx.signal);
    return { ok: true, n };
  };
  const worker = startWorker(engine, { ...settings.worker, handlers: [handle(task(KIND), work)] });
  const sender = await connect({ databaseUrl: target.url, listen: 'off', reconcile: 'off' });
  return {
    perFlow: MEMBERS[kind](0, size).length,
    submit: async (n) => void (await sender.flows.submit({ name: KIND, members: MEMBERS[kind](n, size) })),
    async stop() {
      await worker.stop();
      await Promise.all([engine.close(), sender.close()]);
    },
  };
}
