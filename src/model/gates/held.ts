/**
 * Sentences about sessions whose open transactions hold locks on the rows of an execution. They never quote the
 * sessions' statements, which may contain data.
 */
import { shortDuration } from '../../contract/shape/duration.ts';

/** Only a transaction open for longer than this is reported to hold a row: every change locks it for a moment. */
export const HELD_AFTER_MS = 1_000;

/** What a session last did. */
const SESSION_DOES = {
  step: 'idle after it recorded a step of ctx.tx',
  idle: 'idle in its transaction',
  active: 'at work',
} as const;
export type SessionDoing = keyof typeof SESSION_DOES;

/** Null for what this role may not see. */
export interface SessionFacts {
  pid: number;
  /** The age of its transaction. */
  ageMs: number | null;
  doing: SessionDoing | null;
}

/** The oldest session that does not merely hold its lock for a moment. */
export function holderOf<Session extends SessionFacts>(sessions: readonly Session[]): Session | undefined {
  return sessions.find(({ ageMs }) => ageMs === null || ageMs >= HELD_AFTER_MS);
}

/** `noun` is capitalized at the start of a sentence. */
export function nameSession({ pid, ageMs, doing }: SessionFacts, noun: 'session' | 'Session'): string {
  const age = ageMs === null ? 'whose transaction this role may not see' : `open for ${shortDuration(ageMs)}`;
  return `${noun} ${pid}, ${age}${doing === null ? '' : `, ${SESSION_DOES[doing]}`}`;
}

export function tellHolder(session: SessionFacts): string {
  return `${nameSession(session, 'Session')}, holds a lock on its row; nothing can change it until that transaction ends.`;
}
