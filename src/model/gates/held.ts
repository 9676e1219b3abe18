/**
 * What is said of sessions whose transactions stay open over the rows of an execution. Never what they said: that may quote data.
 */
import { spoken } from '../wording.ts';

/** A transaction that is open for longer over an execution's row is said to hold it: every change holds it for a moment. */
export const HELD_AFTER_MS = 1_000;

/** What a session last did. */
const SESSION_DOES = {
  step: 'idle after it recorded a step of ctx.tx',
  idle: 'idle in its transaction',
  active: 'at work',
} as const;
export type SessionDoing = keyof typeof SESSION_DOES;

/** Null is what the role may not see of it. */
export interface SessionFacts {
  pid: number;
  /** Of its transaction. */
  ageMs: number | null;
  doing: SessionDoing | null;
}

/** The one that has been there for longest, of those that are not just passing by. */
export function holderOf<Session extends SessionFacts>(sessions: readonly Session[]): Session | undefined {
  return sessions.find(({ ageMs }) => ageMs === null || ageMs >= HELD_AFTER_MS);
}

/** `noun` is capitalized at the beginning of a sentence. */
export function nameSession({ pid, ageMs, doing }: SessionFacts, noun: 'session' | 'Session'): string {
  const age = ageMs === null ? 'whose transaction this role may not look at' : `open for ${spoken(ageMs)}`;
  return `${noun} ${pid}, ${age}${doing === null ? '' : `, ${SESSION_DOES[doing]}`}`;
}

export function tellHolder(session: SessionFacts): string {
  return `${nameSession(session, 'Session')}, holds its row; until that ends, nothing can change it.`;
}
