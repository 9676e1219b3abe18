/**
 * How much of the machine other processes used during a measurement. The run consists of the process itself, the
 * Postgres server and all their children; the rest is foreign, and a sample with much of it is marked. Without /proc,
 * or with an external server, nothing is known and nothing is claimed.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { sum } from './figures.mjs';

/** Fields of /proc/<pid>/stat after the name: parent, then user and system time of itself and of exited children. */
const PARENT = 1;
const TIMES = [11, 12, 13, 14];
const IDLE_FIELDS = [3, 4];
const USED_FIELDS = 8;

/** Starts watching; call the returned function to get the shares, from 0 to 1, since then. */
export function watchCpu(rootPids) {
  const before = snapshot(rootPids);
  return () => {
    const after = snapshot(rootPids);
    if (before === undefined || after === undefined) return undefined;
    const total = after.total - before.total;
    if (total <= 0) return undefined;
    const busy = (after.busy - before.busy) / total;
    return { busy: round(busy), foreign: round(Math.max(0, busy - (after.own - before.own) / total)) };
  };
}

function round(share) {
  return Math.round(share * 1_000) / 1_000;
}

function snapshot(rootPids) {
  if (rootPids.includes(null)) return undefined;
  try {
    const ticks = readFileSync('/proc/stat', 'utf8')
      .split('\n')[0]
      .split(/\s+/)
      .slice(1, 1 + USED_FIELDS);
    const counts = ticks.map(Number);
    const total = sum(counts);
    const idle = sum(IDLE_FIELDS.map((field) => counts[field]));
    return { total, busy: total - idle, own: sum(treeTimes(rootPids)) };
  } catch {
    return undefined;
  }
}

function treeTimes(rootPids) {
  const processes = new Map();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const fields = statFields(entry);
    if (fields !== undefined) processes.set(Number(entry), fields);
  }
  const isOwn = (pid) => {
    for (let at = pid; at > 1; at = Number(processes.get(at)?.[PARENT] ?? 0)) {
      if (rootPids.includes(at)) return true;
    }
    return false;
  };
  return [...processes]
    .filter(([pid]) => isOwn(pid))
    .map(([, fields]) => sum(TIMES.map((field) => Number(fields[field]))));
}

/** A process may exit between being listed and being read. */
function statFields(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}
