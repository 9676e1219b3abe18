/**
 * The process of all readers. Two share a connection, behind a separate proxy that can cut it. It follows the feed
 * until it is told the last position, reads up to it and reports what every reader saw.
 */
import { connect } from '../../../dist/index.js';
import { startFaultProxy } from '../../../dist/testing/index.js';
import { Reader } from './reader.mjs';

const READERS_PER_SEAT = 2;
const POOL_SIZE = 3;
const DRAIN_LIMIT_MS = 180_000;

const readers = [];
const seats = [];
let running;

/** A connection that is reopened on demand after it was dropped. */
async function openSeat({ url, port }) {
  const proxy = await startFaultProxy({ targetPort: port });
  const dropped = new WeakSet();
  let current;
  const drop = async () => {
    const opening = current;
    current = undefined;
    const connection = await opening?.catch(() => undefined);
    if (connection === undefined) return;
    dropped.add(connection);
    await connection.close();
  };
  return {
    connection() {
      if (current === undefined) {
        const opening = connect({ databaseUrl: proxy.url(url), poolSize: POOL_SIZE, reconcile: 'off' });
        // A connection that failed to open must not be handed to the next caller.
        opening.catch(() => {
          if (current === opening) current = undefined;
        });
        current = opening;
      }
      return current;
    },
    isDropped: (connection) => dropped.has(connection),
    drop,
    cut: () => proxy.cutAll(),
    async close() {
      await drop();
      await proxy.close();
    },
  };
}

async function start({ url, port, count }) {
  while (seats.length * READERS_PER_SEAT < count) seats.push(await openSeat({ url, port }));
  for (let index = 0; index < count; index += 1) readers.push(new Reader(seats[index % seats.length]));
  running = Promise.all(readers.map((reader) => reader.run()));
}

async function drain({ last }) {
  for (const reader of readers) reader.drainTo(last);
  const timer = setTimeout(() => readers.forEach((reader) => reader.giveUp()), DRAIN_LIMIT_MS);
  await running;
  clearTimeout(timer);
  for (const seat of seats) await seat.close();
  process.send({ type: 'reports', reports: readers.map((reader) => reader.report()) });
}

const ORDERS = { start, drain };
process.on('message', (order) => {
  ORDERS[order.type](order).catch((error) =>
    process.send({ type: 'failed', reason: String(error?.stack ?? error) }),
  );
});
process.on('SIGINT', () => undefined);
process.on('disconnect', () => process.exit(0));
