/**
 * The processes of a soak: controlled by messages, read from, and killed with it.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export function startChild(file) {
  const child = fork(fileURLToPath(new URL(file, import.meta.url)), { serialization: 'advanced' });
  const exited = once(child, 'exit');
  const waiting = new Map();
  let failure;
  const fail = (error) => {
    failure ??= error;
    for (const { reject } of waiting.values()) reject(failure);
  };
  child.on('message', (said) => {
    if (said.type === 'failed') fail(new Error(`${file}: ${said.reason}`));
    waiting.get(said.type)?.resolve(said);
  });
  child.on('exit', (code, signal) => fail(new Error(`${file} ended with ${signal ?? code}.`)));
  return {
    /** Rejects when the process ends first. */
    heard(type) {
      if (failure !== undefined) return Promise.reject(failure);
      return new Promise((resolve, reject) => waiting.set(type, { resolve, reject }));
    },
    tell: (order) => child.send(order),
    async kill() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
