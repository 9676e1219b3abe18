/**
 * The order in which a handler receives the outcomes of what it awaits. A race is won by whatever finishes first, so a
 * handler that runs again must receive the same outcomes in the same order, however long ago they happened. The order
 * of the first run is stored before anything that follows from it; later runs receive exactly that order, and then what
 * is new. After each outcome the handler runs as far as it can before it receives the next one, so that the number of
 * promises in between does not matter.
 */
import type { WorkerPort } from '../../contract/protocol.ts';
import { EngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import { insist } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { callAfter } from './long-timer.ts';
import { subjectOf, TaskAborted } from '../task.ts';
import { LEFTOVER_PATIENCE_MS, type Waits } from './waits.ts';

/** Something a handler awaits and whose outcome it has not received. */
export class Asked {
  readonly id: string;
  readonly #hand: HandOver;
  /** When it finished, if that was before this run. */
  endedAtMs = Number.NEGATIVE_INFINITY;
  /** It is not known yet whether it finished before this run. */
  isBeingLookedUp: boolean;
  hasFailed = false;
  pass: (() => void) | undefined;
  refuse: ((reason: unknown) => void) | undefined;

  constructor(id: string, hand: HandOver, isBeingLookedUp: boolean) {
    this.id = id;
    this.#hand = hand;
    this.isBeingLookedUp = isBeingLookedUp;
  }

  /** It did not finish before this run. */
  live(): void {
    this.endedAtMs = Number.POSITIVE_INFINITY;
    if (!this.isBeingLookedUp) return;
    this.isBeingLookedUp = false;
    this.#hand.lookedUp();
  }

  /** It did not finish before this run, and starts now: waits until all that led to it is stored. */
  begin(): Promise<void> | undefined {
    this.live();
    return this.#hand.saved();
  }
}

const FAILED = '!';
/**
 * What an earlier run received next may be awaited only after something invisible to this class, such as the handler's
 * own request: it is waited for this long, and less once a step's outcome differs from then, because the handler may
 * have taken another branch.
 */
const PATIENCE_MS = { same: LEFTOVER_PATIENCE_MS, other: 1_000 };
/** A timer that fires this late means that the process was frozen, not that the handler awaits nothing. */
const STOOD_STILL_MS = 500;

/** What this class needs to know about the rest of the run. */
export interface Around {
  /** True for a caller whose outcomes need no order: a step's function does not run again once its step is stored. */
  isExempt(): boolean;
  /** Whether output is being written, which the handler may await before it awaits more. */
  isWriting(): boolean;
}

export class HandOver {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  readonly #waits: Waits;
  readonly #around: Around;
  readonly #hasPast: boolean;
  readonly #asked = new Map<string, Asked>();
  readonly #calls = new Map<string, number>();
  #ready: Asked[] = [];
  #lookUps = 0;
  /**
   * What an earlier run received and this one has not, in order, and whether it had failed. Undefined until it is read.
   */
  #past: Map<string, boolean> | undefined;
  #reading: Promise<Map<string, boolean>> | undefined;
  /** The order as stored, and as it is in this run. */
  #stored: string[] = [];
  readonly #handed: string[] = [];
  /** How many leading entries of `handed` equal the stored ones. */
  #same = 0;
  #isUnsaved = false;
  #saving: Promise<void> | undefined;
  #isDraining = false;
  #isListening = false;
  #isClosed = false;
  #asides = 0;
  #patienceMs = PATIENCE_MS.same;
  #callOff: (() => void) | undefined;

  constructor(port: WorkerPort, lease: HeldLease, waits: Waits, around: Around) {
    this.#port = port;
    this.#lease = lease;
    this.#waits = waits;
    this.#around = around;
    this.#hasPast = lease.claim.resumed || lease.claim.attemptIndex > 0;
    if (!this.#hasPast) this.#past = new Map();
  }

  /** A unique id for each of several calls about the same thing. */
  numbered(...what: string[]): string {
    const id = JSON.stringify(what);
    const calls = (this.#calls.get(id) ?? 0) + 1;
    this.#calls.set(id, calls);
    return calls === 1 ? id : JSON.stringify([...what, calls]);
  }

  /** Resolves as `work` does, when it is its turn. */
  async take<Value>(id: string, work: (asked: Asked) => Promise<Value>): Promise<Value> {
    if (this.#around.isExempt()) return work(new Asked(id, this, false));
    const asked = new Asked(id, this, this.#hasPast);
    if (this.#asked.size + this.#handed.length >= LIMITS.handedEnds) throw this.#tooMany();
    this.#asked.set(id, asked);
    if (asked.isBeingLookedUp) this.#lookUps += 1;
    try {
      const value = await work(asked);
      // Most are delivered at once, without awaiting anything.
      const turn = this.#turnOf(asked);
      if (turn !== undefined) await turn;
      return value;
    } catch (error) {
      if (this.#asked.get(id) === asked && !(error instanceof TaskAborted)) {
        asked.hasFailed = true;
        await this.#turnOf(asked);
      }
      throw error;
    } finally {
      this.#forget(asked);
    }
  }

  /** Whether an earlier run received this, so that it has finished whatever the clock says. */
  async wasHanded(id: string): Promise<boolean> {
    return (this.#past ?? (await this.#read())).has(id);
  }

  lookedUp(): void {
    this.#lookUps -= 1;
    if (this.#lookUps === 0) this.#drain();
  }

  /** Whether something is about to be delivered, and does not wait for something that is still awaited itself. */
  isHandingOver(): boolean {
    if (this.#ready.length === 0) return false;
    const head = this.#head();
    return head === undefined || !this.#asked.has(head) || this.#asked.get(head)!.pass !== undefined;
  }

  /** Resolves when the order so far is stored; undefined when it is, or when nothing can depend on it. */
  saved(): Promise<void> | undefined {
    if (this.#isUnsaved) {
      this.#isUnsaved = false;
      const saving = this.#save(this.#saving);
      this.#saving = saving;
      saving.catch(() => {
        this.#isUnsaved = true;
        if (this.#saving === saving) this.#saving = undefined;
      });
    }
    return this.#saving;
  }

  /** Runs output, which has no position in the order, and which the handler may await before it awaits more. */
  async beside<Value>(work: () => Promise<Value>): Promise<Value> {
    this.#asides += 1;
    try {
      return await work();
    } finally {
      this.#asides -= 1;
    }
  }

  /** The handler has finished: nothing more is delivered to it. */
  close(): void {
    this.#isClosed = true;
    this.#callOff?.();
    this.#refuseAll(new TaskAborted('ended'));
  }

  #tooMany(): EngineError {
    const sentence = `more than ${LIMITS.handedEnds} things are awaited in one run; split the work into children`;
    return new EngineError('invalid_step', `${subjectOf(this.#lease.claim)}: ${sentence}.`);
  }

  #forget(asked: Asked): void {
    if (this.#asked.get(asked.id) === asked) this.#asked.delete(asked.id);
    if (!asked.isBeingLookedUp) return;
    asked.isBeingLookedUp = false;
    this.lookedUp();
  }

  /** Resolves when it is the turn of one that has finished; undefined when it is, and it was delivered. */
  #turnOf(asked: Asked): Promise<void> | undefined {
    if (asked.isBeingLookedUp) {
      asked.isBeingLookedUp = false;
      this.lookedUp();
    }
    if (this.#isClosed) throw new TaskAborted('ended');
    const isNext =
      !this.#isDraining && this.#ready.length === 0 && this.#past?.size === 0 && this.#lookUps === 0;
    // What finished before this run is known at once, before the handler has awaited what runs beside it.
    const isNew = !this.#hasPast || asked.endedAtMs === Number.POSITIVE_INFINITY;
    if (isNext && isNew) {
      this.#deliver(asked);
      return undefined;
    }
    this.#listen();
    return new Promise<void>((pass, refuse) => {
      asked.pass = pass;
      asked.refuse = refuse;
      this.#ready.push(asked);
      this.#drain();
    });
  }

  #listen(): void {
    this.#lease.throwIfStopped();
    if (this.#isListening) return;
    this.#isListening = true;
    const { signal } = this.#lease;
    signal.addEventListener('abort', () => this.#refuseAll(signal.reason), { once: true });
  }

  #refuseAll(reason: unknown): void {
    for (const asked of this.#ready.splice(0)) asked.refuse?.(reason);
  }

  /** Lets the handler run as far as it can, and delivers the next outcome. */
  #drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    setImmediate(() => {
      this.#isDraining = false;
      this.#handNext();
    });
  }

  #handNext(): void {
    if (this.#ready.length === 0) return;
    if (this.#past === undefined && this.#asked.size > 1) {
      this.#read().then(
        () => this.#drain(),
        (error: unknown) => this.#refuseAll(error),
      );
      return;
    }
    const next = this.#next();
    if (next === undefined) return this.#wait();
    this.#ready.splice(this.#ready.indexOf(next), 1);
    this.#deliver(next);
    next.pass?.();
  }

  #head(): string | undefined {
    return this.#past?.keys().next().value;
  }

  #next(): Asked | undefined {
    const head = this.#head();
    if (head !== undefined) return this.#ready.find(({ id }) => id === head);
    if (this.#lookUps > 0) return undefined;
    let first: Asked | undefined;
    for (const asked of this.#ready) {
      if (first === undefined || asked.endedAtMs < first.endedAtMs) first = asked;
    }
    return first;
  }

  #deliver(asked: Asked): void {
    const { id, hasFailed } = asked;
    this.#callOff?.();
    this.#callOff = undefined;
    this.#asked.delete(id);
    const text = hasFailed ? FAILED + id : id;
    this.#handed.push(text);
    this.#compare();
    // Nothing else could have been delivered instead, unless the stored order differs.
    const isChoice = this.#asked.size > 0 || this.#same < this.#stored.length;
    if (this.#same < this.#handed.length && isChoice) this.#isUnsaved = true;
    const hadFailed = this.#past?.get(id);
    this.#past?.delete(id);
    // A step that failed in the first run and does not now, or the reverse: what followed then may never be awaited.
    if (hadFailed !== undefined)
      this.#patienceMs = hadFailed === hasFailed ? PATIENCE_MS.same : PATIENCE_MS.other;
    this.#waits.happened();
    // In a first run, whatever is awaited from here on finishes in another turn.
    if (this.#asked.size > 0 || this.#hasPast) this.#drain();
  }

  /** What an earlier run received next is not awaited: the handler does something else, or its code was changed. */
  #wait(): void {
    const head = this.#head();
    this.#waits.consider();
    if (head === undefined || this.#asked.has(head) || this.#callOff !== undefined) return;
    const until = performance.now() + this.#patienceMs;
    this.#callOff = callAfter(this.#patienceMs, () => {
      this.#callOff = undefined;
      const isHeldUp = this.#asides > 0 || this.#around.isWriting();
      if (isHeldUp || performance.now() - until > STOOD_STILL_MS) this.#wait();
      else this.#dropUnasked();
    });
  }

  #dropUnasked(): void {
    for (const id of this.#past!.keys()) {
      if (this.#asked.has(id)) break;
      this.#past!.delete(id);
    }
    this.#drain();
  }

  #read(): Promise<Map<string, boolean>> {
    this.#reading ??= insist(this.#lease, () => this.#port.readOrder(this.#lease.claim.executionId)).then(
      (stored) => {
        this.#stored = stored;
        this.#compare();
        const handed = new Set(this.#handed.map(idOf));
        const left = stored.filter((text) => !handed.has(idOf(text)));
        return (this.#past = new Map(left.map((text) => [idOf(text), text.startsWith(FAILED)])));
      },
    );
    return this.#reading;
  }

  async #save(before: Promise<void> | undefined): Promise<void> {
    await before;
    const place = this.#same;
    // An earlier save included them. So no two saves of a run write the same position.
    if (place >= this.#handed.length) return;
    const left = [...(this.#past ?? [])].map(([id, hasFailed]) => (hasFailed ? FAILED + id : id));
    const order = [...this.#handed, ...left].slice(0, LIMITS.handedEnds);
    const ends = order.slice(place);
    const { claim } = this.#lease;
    const answer = await insist(this.#lease, () => this.#port.recordOrder(claim, { place, ends }));
    if (answer.outcome !== 'recorded') {
      this.#lease.refused(answer);
      throw new TaskAborted(this.#lease.lostBy ?? 'lease_lost');
    }
    this.#stored = order;
    this.#compare();
  }

  #compare(): void {
    while (this.#same < this.#handed.length && this.#handed[this.#same] === this.#stored[this.#same])
      this.#same += 1;
  }
}

/** Steps, sleeps and waits share one set of names. */
export function stepOutcomeId(name: string, key: string): string {
  return JSON.stringify(key === '' ? ['step', name] : ['step', name, key]);
}

function idOf(text: string): string {
  return text.startsWith(FAILED) ? text.slice(FAILED.length) : text;
}
