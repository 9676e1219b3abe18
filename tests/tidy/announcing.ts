/**
 * Only one place announces what has changed, derived from what the database returned. An operation that rang by itself
 * could forget somebody.
 */
import { findPattern, isCode, isTest, isUnder, lexed, type Check } from './tree.ts';

const ANNOUNCERS = new Set(['src/engine/kit/announce.ts', 'src/engine/kit/doorbell.ts']);
/** Called or passed on as a method, or destructured from its object. */
const RINGING = /\.\s*(?:ring|stir)\b|\{[^{}]*\b(?:ring|stir)\b[^{}]*\}\s*(?:=|:[^=]*=)(?![=>])/g;

export const oneAnnouncer: Check = {
  name: 'only announce rings the doorbell or has work on flows begun',
  find: (files) =>
    files
      .filter(
        (file) => isCode(file) && isUnder(file, 'src/engine') && !isTest(file) && !ANNOUNCERS.has(file.path),
      )
      .flatMap((file) => findPattern(file, lexed(file).code, RINGING, 'rings by itself')),
};
