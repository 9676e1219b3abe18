/**
 * Refuses what nobody would read: a misspelled setting that is accepted is believed in.
 */
import { refuse } from './checks.ts';

/** A plain object that has no members but the known ones. */
export function checkMembers(value: unknown, field: string, known: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse(field, 'must be an object');
  for (const key of Object.keys(value)) {
    if (!known.includes(key))
      refuse(`${field}.${key}`, `is not a known setting (known: ${known.join(', ')})`);
  }
}

/** One of a few words; absent is fine. */
export function checkChoice(value: unknown, field: string, choices: readonly string[]): void {
  if (value === undefined || (typeof value === 'string' && choices.includes(value))) return;
  refuse(field, `must be one of ${choices.join(', ')}`);
}
