/**
 * What a reader of a stream should show. Output that is written again must not be shown twice, and which frames that
 * concerns is said by later items: a restart, another attempt, another try of a step.
 */
import type { StreamFrame, StreamItem } from '../contract/streams.ts';

type Step = NonNullable<StreamFrame['step']>;

interface Shown {
  frame: StreamFrame;
  /** Of a step that has finished: nobody writes it again. */
  isFinal: boolean;
}

/**
 * The frames to show now, in order, given the items of a tail so far: without those that are written again after a
 * restart, by another attempt or by a later try of their step. To go on after a reload, keep the items or start the tail
 * from the beginning.
 */
export function foldStream(items: Iterable<StreamItem>): StreamFrame[] {
  let shown: Shown[] = [];
  /** Of each step whose frames may still be written again, the latest try. */
  const tries = new Map<string, number>();
  for (const item of items) {
    if (item.type === 'frame') {
      const { frame } = item;
      if (frame.step !== null && isLaterTry(tries, frame.step))
        shown = shown.filter((one) => one.isFinal || !isOf(one.frame, frame.step!));
      shown.push({ frame, isFinal: false });
    }
    if (item.type !== 'restarted' && item.type !== 'superseded') continue;
    const finished = new Set(item.finishedSteps.map(nameOf));
    shown = shown
      .filter(({ frame: { step }, isFinal }) => isFinal || (step !== null && finished.has(nameOf(step))))
      .map(({ frame }) => ({ frame, isFinal: true }));
    tries.clear();
  }
  return shown.map(({ frame }) => frame);
}

function isLaterTry(tries: Map<string, number>, step: Step): boolean {
  const name = nameOf(step);
  const before = tries.get(name);
  tries.set(name, step.tryIndex);
  return before !== undefined && before < step.tryIndex;
}

function isOf({ step }: StreamFrame, other: Step): boolean {
  return step !== null && step.name === other.name && step.key === other.key;
}

function nameOf({ name, key }: { name: string; key: string }): string {
  return JSON.stringify([name, key]);
}
