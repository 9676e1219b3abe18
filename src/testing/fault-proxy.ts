/**
 * A TCP proxy in front of Postgres that breaks connections at a chosen statement, so that tests can show what survives
 * a crash. It parses the wire protocol to find the statement and changes no frame. A TLS session is passed through
 * unread: it can be stalled and cut, but not matched. What a fault means for the engine is up to the tests.
 */

import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineError } from '../contract/errors.ts';

/** A longer message is not buffered: its connection is cut. */
const MAX_FRAME_BYTES = 64 * 1024 * 1024;
/** Faults armed at the same time. */
const MAX_ARMED = 100;
/** What a first packet may request instead of a session: TLS, GSS encryption, or cancelling a query. */
const ENCRYPTION_REQUESTS = [80877103, 80877104];
const CANCEL_REQUEST = 80877102;

/** A connection to Postgres that breaks on command. */
export interface FaultProxy {
  readonly port: number;
  /** Currently open connections. */
  readonly connectionCount: number;
  /** The same connection string, through the proxy. */
  url(original: string): string;
  /** Resets every open connection. */
  cutAll(): void;
  /** Stops all traffic in both directions without telling either side, even when the other one closes. */
  stall(): void;
  /** Delivers what was held back. */
  resume(): void;
  /** Delays every chunk by this long. Zero turns it off. */
  delay(ms: number): void;
  /** Cuts the next connection that sends a matching statement, before the server sees it. */
  cutBefore(pattern: string | RegExp): Promise<void>;
  /**
   * Lets the next matching statement run and cuts its connection once the server is ready for another, which is after
   * the commit. The client sees no response; the promise resolves to it: `INSERT 0 1`, `ERROR 23505`.
   */
  cutAfter(pattern: string | RegExp): Promise<string>;
  /** Resets every connection and stops listening. Faults that did not happen reject. */
  close(): Promise<void>;
}

interface Fault {
  when: 'before' | 'after';
  pattern: string | RegExp;
  fire(answer: string): void;
  drop(error: Error): void;
}

interface Proxy {
  armed: Fault[];
  links: Set<Link>;
  delayMs: number;
  /** Pending while stalled. */
  gate: Promise<void>;
  openGate: (() => void) | null;
}

interface Link {
  client: Socket;
  server: Socket;
  phase: 'startup' | 'encryption asked' | 'framed' | 'raw';
  /** SQL of prepared statements and portals, by name. */
  statements: Map<string, string>;
  portals: Map<string, string>;
  /** ReadyForQuery messages the server owes for what was sent so far, and those received. */
  readyOwed: number;
  readySeen: number;
  /** The fault this link met. It strikes at ReadyForQuery number `at`; no part of the response before it passes. */
  ending: { fault: Fault; at: number; answer: string } | null;
  struck: boolean;
}

type Verdict = 'pass' | 'drop' | 'cut';

/** Starts a proxy before a Postgres server; connect to its address. */
export async function startFaultProxy(target: {
  targetPort: number;
  targetHost?: string;
}): Promise<FaultProxy> {
  const proxy: Proxy = { armed: [], links: new Set(), delayMs: 0, gate: Promise.resolve(), openGate: null };
  const listener = createServer((client) => {
    const server = connect(target.targetPort, target.targetHost ?? '127.0.0.1');
    openLink(proxy, client, server);
  });
  await new Promise<void>((resolve, reject) => {
    listener.once('error', reject).listen(0, '127.0.0.1', resolve);
  });
  const { port } = listener.address() as AddressInfo;
  const cutAll = () => [...proxy.links].forEach(resetLink);
  const resume = () => {
    proxy.openGate?.();
    proxy.openGate = null;
  };
  return {
    port,
    get connectionCount() {
      return proxy.links.size;
    },
    url: (original) => throughPort(original, port),
    cutAll,
    stall() {
      if (proxy.openGate === null) proxy.gate = new Promise((resolve) => (proxy.openGate = resolve));
    },
    resume,
    delay: (ms) => void (proxy.delayMs = ms),
    cutBefore: async (pattern) => void (await arm(proxy, 'before', pattern)),
    cutAfter: (pattern) => arm(proxy, 'after', pattern),
    async close() {
      const closed = new Promise((resolve) => listener.close(resolve));
      cutAll();
      resume();
      for (const fault of proxy.armed.splice(0)) {
        fault.drop(new EngineError('closed', `The proxy closed before it met ${fault.pattern}.`));
      }
      await closed;
    },
  };
}

function throughPort(original: string, port: number): string {
  const url = new URL(original);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  for (const override of ['host', 'hostaddr', 'port']) url.searchParams.delete(override);
  return url.href;
}

function arm(proxy: Proxy, when: Fault['when'], pattern: string | RegExp): Promise<string> {
  if (proxy.armed.length >= MAX_ARMED)
    throw new EngineError('too_many', `At most ${MAX_ARMED} faults can be armed at the same time.`);
  const happened = new Promise<string>((fire, drop) => proxy.armed.push({ when, pattern, fire, drop }));
  happened.catch(() => {}); // a test that ignores its fault must not cause an unhandled rejection
  return happened;
}

function openLink(proxy: Proxy, client: Socket, server: Socket): void {
  const memory = { statements: new Map(), portals: new Map(), readyOwed: 1, readySeen: 0 };
  const link: Link = { client, server, phase: 'startup', ending: null, struck: false, ...memory };
  proxy.links.add(link);
  for (const socket of [client, server]) {
    socket.setNoDelay(true);
    socket.on('error', () => {}); // the pump that reads the socket meets the same error
    socket.once('close', () => client.destroyed && server.destroyed && proxy.links.delete(link));
  }
  void pump(proxy, link, client, server, (frame) => judgeClient(proxy, link, frame));
  void pump(proxy, link, server, client, (frame) => judgeServer(link, frame));
}

function resetLink(link: Link): void {
  link.client.resetAndDestroy();
  link.server.resetAndDestroy();
}

/** Moves one direction, frame by frame, until a side closes or the fault strikes. */
async function pump(proxy: Proxy, link: Link, from: Socket, to: Socket, judge: (frame: Buffer) => Verdict) {
  const held: Buffer[] = [];
  let heldBytes = 0;
  let wantedBytes = 0;
  try {
    for await (const chunk of from) {
      if (proxy.delayMs > 0) await sleep(proxy.delayMs);
      await proxy.gate;
      held.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes < wantedBytes) continue;
      let rest = Buffer.concat(held.splice(0));
      const passed: Buffer[] = [];
      for (;;) {
        wantedBytes = frameBytes(link, from, rest);
        if (rest.length < wantedBytes) break;
        const verdict = judge(rest.subarray(0, wantedBytes));
        if (verdict === 'cut') return await strike(link, to, passed);
        if (verdict === 'pass') passed.push(rest.subarray(0, wantedBytes));
        rest = rest.subarray(wantedBytes);
      }
      held.push(rest);
      heldBytes = rest.length;
      if (passed.length > 0 && !to.write(Buffer.concat(passed))) await drained(to);
    }
    await proxy.gate;
    to.end();
  } catch {
    await proxy.gate;
    if (!link.struck) resetLink(link);
  }
}

/** What came before the statement, or before its response, is still delivered; then both sides lose the connection. */
async function strike(link: Link, to: Socket, passed: Buffer[]): Promise<void> {
  link.struck = true;
  if (passed.length > 0) await new Promise((resolve) => to.write(Buffer.concat(passed), resolve));
  link.client.resetAndDestroy();
  link.server.end();
  link.ending?.fault.fire(link.ending.answer);
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) return resolve();
    const done = () => {
      socket.off('drain', done).off('close', done);
      resolve();
    };
    socket.on('drain', done).on('close', done);
  });
}

/** Length of the first frame, or as many bytes as it takes to know it. Always positive. */
function frameBytes(link: Link, from: Socket, bytes: Buffer): number {
  const isClient = from === link.client;
  if (link.phase === 'raw') return Math.max(bytes.length, 1);
  if (link.phase === 'encryption asked' && !isClient) return 1;
  const lengthAt = link.phase === 'startup' && isClient ? 0 : 1;
  if (bytes.length < lengthAt + 4) return lengthAt + 4;
  const total = lengthAt + bytes.readInt32BE(lengthAt);
  if (total >= lengthAt + 4 && total <= MAX_FRAME_BYTES) return total;
  throw new EngineError('payload_too_large', `A message of ${total} bytes is too large for the proxy.`);
}

function judgeClient(proxy: Proxy, link: Link, frame: Buffer): Verdict {
  if (link.phase !== 'framed') {
    if (link.phase === 'startup') link.phase = phaseAfter(frame.length >= 8 ? frame.readInt32BE(4) : 0);
    return 'pass';
  }
  const type = String.fromCharCode(frame[0]!);
  const text = sqlOf(link, type, frame);
  const at = link.readyOwed + 1;
  if ('QSF'.includes(type)) link.readyOwed += 1;
  if (text === undefined || link.ending !== null) return 'pass';
  const index = proxy.armed.findIndex(
    (fault) => (fault.when === 'before' ? 'QPB' : 'QE').includes(type) && contains(text, fault.pattern),
  );
  const [fault] = index < 0 ? [] : proxy.armed.splice(index, 1);
  if (fault === undefined) return 'pass';
  link.ending = { fault, at, answer: '' };
  return fault.when === 'before' ? 'cut' : 'pass';
}

function phaseAfter(request: number): Link['phase'] {
  if (ENCRYPTION_REQUESTS.includes(request)) return 'encryption asked';
  return request === CANCEL_REQUEST ? 'raw' : 'framed';
}

/** The SQL of a Query, Parse, Bind or Execute; remembers what later messages refer to. */
function sqlOf(link: Link, type: string, frame: Buffer): string | undefined {
  const [first = '', second = ''] = 'QPBEC'.includes(type) ? frame.toString('utf8', 5).split('\0', 2) : [];
  if (type === 'Q') return first;
  if (type === 'P') link.statements.set(first, second);
  if (type === 'P') return second;
  if (type === 'B') link.portals.set(first, link.statements.get(second) ?? '');
  if (type === 'C') link[first.startsWith('S') ? 'statements' : 'portals'].delete(first.slice(1));
  return 'BE'.includes(type) ? link.portals.get(first) : undefined;
}

function contains(text: string, pattern: string | RegExp): boolean {
  return typeof pattern === 'string' ? text.includes(pattern) : text.search(pattern) >= 0;
}

function judgeServer(link: Link, frame: Buffer): Verdict {
  const type = String.fromCharCode(frame[0]!);
  if (link.phase === 'encryption asked') link.phase = type === 'N' ? 'startup' : 'raw';
  if (link.phase !== 'framed') return 'pass';
  if (type === 'Z') link.readySeen += 1;
  if (link.ending === null || link.readySeen < link.ending.at - 1) return 'pass';
  if (link.readySeen >= link.ending.at) return type === 'Z' ? 'cut' : 'drop';
  if (type === 'Z') return 'pass'; // the response to the previous statement
  if (type === 'C') link.ending.answer = frame.toString('utf8', 5, frame.length - 1);
  if (type === 'E') link.ending.answer = `ERROR ${/\0C([0-9A-Z]{5})\0/.exec(frame.toString('utf8', 4))?.[1]}`;
  return type === 'G' ? 'pass' : 'drop'; // a COPY needs the client to be asked for its rows
}
