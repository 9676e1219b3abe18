/**
 * Callbacks for an abort, with one listener per AbortSignal: an application passes one AbortSignal to all its readers,
 * and Node reports many listeners as a leak.
 */
interface Listening {
  calls: Set<() => void>;
  stop(): void;
}

const listenings = new WeakMap<AbortSignal, Listening>();

/** Calls back once, immediately if already aborted. Returns a function that unsubscribes. */
export function whenAborted(signal: AbortSignal | undefined, call: () => void): () => void {
  if (signal === undefined) return () => undefined;
  if (signal.aborted) {
    call();
    return () => undefined;
  }
  const { calls, stop } = listenings.get(signal) ?? listen(signal);
  calls.add(call);
  return () => {
    if (calls.delete(call) && calls.size === 0) stop();
  };
}

function listen(signal: AbortSignal): Listening {
  const calls = new Set<() => void>();
  const tell = (): void => {
    for (const call of calls) call();
    calls.clear();
  };
  const stop = (): void => {
    listenings.delete(signal);
    signal.removeEventListener('abort', tell);
  };
  signal.addEventListener('abort', tell, { once: true });
  const listening = { calls, stop };
  listenings.set(signal, listening);
  return listening;
}

/** Resolves as `awaited` does, or rejects with the AbortSignal's reason as soon as it is aborted. */
export function unlessAborted<Value>(
  signal: AbortSignal | undefined,
  awaited: Promise<Value>,
): Promise<Value> {
  if (signal === undefined) return awaited;
  return new Promise((resolve, reject) => {
    const stop = whenAborted(signal, () => reject(signal.reason as Error));
    awaited.then(resolve, reject).finally(stop);
  });
}
