/**
 * What a reader of a stream should show. Output that is written again must not be shown twice, and which frames that
 * concerns follows from later items: a restart, another attempt, another try of a step. Another attempt writes only what is
 * not in finished steps, and what those have written is put where the handler comes past them.
 */
import type { StreamFrame, StreamItem } from '../contract/streams.ts';

type Step = NonNullable<StreamFrame['step']>;

/**
 * The frames to show now, in the order of the handler, given the items of a tail so far: without those that are written
 * again after a restart, by another attempt or by a later try of their step. To go on after a reload, keep the items or
 * start the tail from the beginning.
 */
export function foldStream(items: Iterable<StreamItem>): StreamFrame[] {
  const shown = new Shown();
  for (const item of items) {
    if (item.type === 'frame') shown.add(item.frame);
    else if (item.type === 'resumed') shown.resume(item.finishedSteps);
    else if (item.type === 'restarted') shown.restart(item);
    else if (item.type === 'superseded') shown.supersede(item.finishedSteps);
  }
  return shown.frames();
}

class Shown {
  /** Of the current attempt, and of finished steps that it has come past. */
  #done: StreamFrame[] = [];
  /** Of finished steps of earlier attempts that it has not come past. */
  #ahead: StreamFrame[] = [];
  /** Frames that stay for good, whatever follows. */
  readonly #final = new Set<StreamFrame>();
  /** Of each step whose frames may still be written again, the latest try. */
  readonly #tries = new Map<string, number>();

  add(frame: StreamFrame): void {
    if (frame.child !== null) this.#final.add(frame);
    else this.#comePast(frame.after);
    if (frame.step !== null && this.#isLaterTry(frame.step))
      this.#done = this.#done.filter((one) => this.#final.has(one) || !isOf(one, frame.step!));
    this.#done.push(frame);
  }

  /** The attempt continues: what was written outside of steps stays. */
  resume(finishedSteps: readonly Named[]): void {
    const isFinished = within(finishedSteps);
    this.#done = this.#done.filter((one) => one.step === null || this.#final.has(one) || isFinished(one));
    for (const one of this.#done) if (one.step !== null) this.#final.add(one);
    this.#tries.clear();
  }

  /** The attempt continues with something else. */
  restart({ attemptIndex, stream, mode, from }: Restart): void {
    const isGone = (one: StreamFrame): boolean =>
      one.attemptIndex === attemptIndex &&
      one.frameType === stream &&
      one.mode === mode &&
      seqOf(one.id) >= seqOf(from);
    this.#done = this.#done.filter((one) => one.step !== null || this.#final.has(one) || !isGone(one));
  }

  /** Another attempt begins: of this one only finished steps stay. */
  supersede(finishedSteps: readonly Named[]): void {
    const isFinished = within(finishedSteps);
    this.#ahead = this.frames().filter((one) => this.#final.has(one) || isFinished(one));
    for (const one of this.#ahead) this.#final.add(one);
    this.#done = [];
    this.#tries.clear();
  }

  frames(): StreamFrame[] {
    return [...this.#done, ...this.#ahead];
  }

  /** Null: past all of them. */
  #comePast(steps: readonly Named[] | null): void {
    if (steps === null) {
      this.#done.push(...this.#ahead);
      this.#ahead = [];
      return;
    }
    for (const step of steps) {
      const isIts = within([step]);
      this.#done.push(...this.#ahead.filter(isIts));
      this.#ahead = this.#ahead.filter((one) => !isIts(one));
    }
  }

  #isLaterTry(step: Step): boolean {
    const name = nameOf(step);
    const before = this.#tries.get(name);
    this.#tries.set(name, step.tryIndex);
    return before !== undefined && before < step.tryIndex;
  }
}

type Named = Pick<Step, 'name' | 'key'>;
type Restart = Extract<StreamItem, { type: 'restarted' }>;

function within(steps: readonly Named[]): (frame: StreamFrame) => boolean {
  const names = new Set(steps.map(nameOf));
  return ({ step }) => step !== null && names.has(nameOf(step));
}

function isOf({ step }: StreamFrame, other: Step): boolean {
  return step !== null && step.name === other.name && step.key === other.key;
}

function nameOf({ name, key }: Named): string {
  return JSON.stringify([name, key]);
}

function seqOf(id: string): number {
  return Number(id.slice(id.indexOf('-') + 1));
}
