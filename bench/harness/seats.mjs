/**
 * Starts worker and producer processes and talks to them. Each sample gets fresh ones, so that no contender inherits a
 * warm process, and none sees another's modules.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const SEAT = fileURLToPath(new URL('seat.mjs', import.meta.url));
const LEAVE_LIMIT_MS = 5_000;
const STDERR_KEPT = 4_000;

/**
 * @typedef {object} Seat
 * @property {(module: URL | string, name: string, args: unknown) => Promise<any>} call
 * @property {(listener: (news: any) => void) => void} onNews
 * @property {() => Promise<void>} close
 */

/** @returns {Seat} */
export function openSeat() {
  const child = fork(SEAT, { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  const waiting = new Map();
  let lastId = 0;
  let stderr = '';
  let listener = () => undefined;
  child.stderr.setEncoding('utf8');
  child.stderr.on('data', (text) => {
    stderr = (stderr + text).slice(-STDERR_KEPT);
  });
  child.on('message', ({ id, answer, error, news }) => {
    if (id === undefined) return void listener(news);
    const call = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) return void call.resolve(answer);
    call.reject(new Error(`${error}\n${stderr}`.trim()));
  });
  child.on('exit', (code, signal) => {
    for (const call of waiting.values()) {
      call.reject(new Error(`The process ended (${signal ?? code}).\n${stderr}`.trim()));
    }
    waiting.clear();
  });
  return {
    call: (module, name, args) =>
      new Promise((resolve, reject) => {
        lastId += 1;
        waiting.set(lastId, { resolve, reject });
        child.send({ id: lastId, module: String(module), name, args });
      }),
    onNews(next) {
      listener = next;
    },
    close: () => leave(child),
  };
}

async function leave(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  if (child.connected) child.send('leave');
  const timer = setTimeout(() => child.kill('SIGKILL'), LEAVE_LIMIT_MS);
  await gone;
  clearTimeout(timer);
}

/** Opens some seats, runs a function with them, and closes them whatever happens. */
export async function withSeats(count, run) {
  const seats = Array.from({ length: count }, openSeat);
  try {
    return await run(seats);
  } finally {
    await Promise.all(seats.map((seat) => seat.close()));
  }
}
