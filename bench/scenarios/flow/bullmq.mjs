/**
 * BullMQ's FlowProducer, on a Redis whose log is flushed once a second. Its flows are trees whose children run first: a
 * chain fits; a root before the branches does not, so the root's handler adds the join with its branches. Runs in a
 * seat.
 */
import { FlowProducer, Queue, Worker } from 'bullmq';

const QUEUE = 'bench';

function node(data, children) {
  return { name: QUEUE, queueName: QUEUE, data, ...(children === undefined ? {} : { children }) };
}

/** The last link is the outermost: its dependencies are inside it. */
function chain(n, size) {
  let tree = node({ n, role: 'link' });
  for (let i = 1; i < size; i += 1) tree = node({ n, role: i === size - 1 ? 'end' : 'link' }, [tree]);
  return tree;
}

function join(n, size) {
  const branches = Array.from({ length: size }, () => node({ n, role: 'branch' }));
  return node({ n, role: 'end' }, branches);
}

/** @returns {Promise<import('./desk.mjs').Flows>} */
export async function openFlows({ target, settings, shape }, desk) {
  const { kind, size } = shape;
  const { hostname, port } = new URL(target.url);
  const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
  const [inside, outside] = [0, 1].map(() => new FlowProducer({ connection }));
  const queue = new Queue(QUEUE, { connection });
  const work = async ({ data: { n, role } }) => {
    if (role === 'end') desk.tell(n, 'end');
    if (role === 'root') {
      await inside.add(join(n, size));
      desk.tell(n, 'over');
    }
    return { ok: true, n };
  };
  const worker = new Worker(QUEUE, work, { connection, ...settings.worker });
  worker.on('error', (error) => process.stderr.write(`bullmq: ${error.message}\n`));
  await Promise.all([worker, inside, outside, queue].map((one) => one.waitUntilReady()));
  return {
    perFlow: kind === 'chain' ? size : size + 2,
    submit: async (n) =>
      void (await (kind === 'chain' ? outside.add(chain(n, size)) : queue.add(QUEUE, { n, role: 'root' }))),
    async stop() {
      await worker.close();
      await Promise.all([inside, outside, queue].map((one) => one.close()));
    },
  };
}
