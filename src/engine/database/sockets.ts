/**
 * The sockets of our own connections, so that they can be destroyed. A client that is asked to end waits for the other
 * side, and one that is still connecting waits for its first answer; neither may ever come.
 */
import { Socket } from 'node:net';

export interface Sockets {
  /** For the driver: a new socket for each connection. */
  open(): Socket;
  destroyAll(): void;
}

export function trackSockets(): Sockets {
  const sockets = new Set<Socket>();
  return {
    open() {
      const socket = new Socket();
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
      return socket;
    },
    destroyAll() {
      for (const socket of sockets) socket.destroy();
    },
  };
}
