/**
 * The process of all writers. Given the server's address, it writes until it is told to stop, and then reports what it
 * knows about every transaction. It exits when its parent process does.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { runEngine } from './engine-load.mjs';
import { Ledger } from './ledger.mjs';
import { writeLate, writePrepared } from './patient-writers.mjs';
import { Session } from './session.mjs';
import { below, runShort } from './transaction.mjs';

/** Between two transactions of a writer: the readers must be able to keep up, on small machines too. */
const PAUSE_MS = 250;
const PREPARING = 2;
/** Longer than any run: this one is open when the server crashes. */
const DOOMED_HOLD_MS = 3_600_000;

const ledger = new Ledger();
const stopping = new AbortController();
let running;

async function writeShort(url, writer) {
  const session = new Session(url, 'soak-writer');
  for (let count = 1; !stopping.signal.aborted; count += 1) {
    try {
      await runShort(session, ledger, `${writer}-${count}`);
    } catch (error) {
      ledger.fault(error);
      await session.abandon();
    }
    await delay(below(PAUSE_MS));
  }
  await session.close();
}

function start({ url, writers }) {
  const guarded = (promise) => promise.catch((error) => ledger.fault(error));
  const short = Array.from({ length: writers }, (_, index) => writeShort(url, index));
  const prepared = Array.from({ length: PREPARING }, (_, index) =>
    writePrepared(url, ledger, { entity: 2 + index, stop: stopping.signal }),
  );
  // Not awaited: only the crash ends it, and nothing it wrote may be seen.
  ledger.aborted.add('doomed');
  void guarded(writeLate(url, ledger, { name: 'doomed', entity: 0, holdMs: DOOMED_HOLD_MS }));
  const load = runEngine(url, ledger, stopping.signal);
  running = Promise.all([...short, ...prepared, load].map(guarded));
}

/** Retries until one could commit: a crash may have come in between. */
async function late({ url, holdMs }) {
  for (let tries = 1; !stopping.signal.aborted; tries += 1) {
    try {
      if (await writeLate(url, ledger, { name: `late-${tries}`, entity: 1, holdMs })) break;
    } catch (error) {
      ledger.fault(error);
      break;
    }
  }
  process.send({ type: 'late-done' });
}

async function stop() {
  stopping.abort();
  await running;
  const { committed, aborted, unknown, longestMs, faults } = ledger;
  process.send({ type: 'ledger', ledger: { committed, aborted, unknown, longestMs, faults } });
}

const ORDERS = { start, late, stop };
process.on('message', (order) => void ORDERS[order.type](order));
process.on('SIGINT', () => undefined);
process.on('disconnect', () => process.exit(0));
