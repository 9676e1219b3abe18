/**
 * When a notification may be inside a transaction: no clock, no timers, no database.
 */
import { expect, it } from 'vitest';
import { INSIDE, InsideGate } from './inside-gate.ts';

/** Enters, and leaves at once if it could. */
function mayEnter(gate: InsideGate, nowMs: number): boolean {
  const may = gate.enter(nowMs);
  if (may) gate.leave(nowMs);
  return may;
}

it('is closed from the notification that reaches the limit until the first of them is a second old', () => {
  const gate = new InsideGate();
  for (let n = 1; n < INSIDE.perSecond; n += 1) gate.heard(100 + n / 10);
  expect(mayEnter(gate, 300)).toBe(true);
  gate.heard(300);
  expect(mayEnter(gate, 300)).toBe(false);
  expect(mayEnter(gate, 1_100)).toBe(false);
  expect(mayEnter(gate, 1_101)).toBe(true);
});

it('stays closed while more are heard than the limit, however long', () => {
  const gate = new InsideGate();
  const everyMs = 500 / INSIDE.perSecond;
  let passed = 0;
  for (let n = 0; n < INSIDE.perSecond * 10; n += 1) {
    gate.heard(n * everyMs);
    if (n >= INSIDE.perSecond && mayEnter(gate, n * everyMs)) passed += 1;
  }
  expect(passed).toBe(0);
});

it('lets one in at a time', () => {
  const gate = new InsideGate();
  expect(gate.enter(0)).toBe(true);
  expect(gate.enter(1)).toBe(false);
  gate.leave(2);
  expect(gate.enter(2)).toBe(true);
});

it('rests after one that took long', () => {
  const gate = new InsideGate();
  gate.enter(0);
  gate.leave(INSIDE.longestMs);
  expect(gate.enter(10)).toBe(true);
  gate.leave(10 + INSIDE.longestMs + 1);
  expect(gate.enter(10 + INSIDE.restMs)).toBe(false);
  expect(gate.enter(20 + INSIDE.longestMs + INSIDE.restMs)).toBe(true);
});
