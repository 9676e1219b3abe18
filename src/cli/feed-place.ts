/**
 * A position in the event feed as the command line takes it: a cursor, `now` or `beginning`. Rejects anything else before
 * the database is asked, and names the option in the engine's errors about cursors.
 */
import { decodeCursor } from '../contract/cursor.ts';
import { EngineError, isEngineError, type ErrorCode } from '../contract/errors.ts';
import { EXIT } from './exit-codes.ts';
import type { Session } from './session.ts';

const STARTS = ['now', 'beginning'];
const CURSOR_CODES: readonly ErrorCode[] = ['cursor_expired', 'cursor_ahead'];
const CURSOR_HINT = 'a cursor is what events tail printed or event.cursor contains; or use now or beginning';

/** Why a position was refused, and what helps. */
interface Refusal {
  message: string;
  hint: string;
}

/** Null when the text is a position. An empty string is an unset variable: it never means a default. */
export function refusedPlace(text: string, option: string): Refusal | null {
  if (STARTS.includes(text)) return null;
  if (text === '') return { message: `${option} is empty: use now or beginning.`, hint: CURSOR_HINT };
  if (/^\d+$/.test(text)) {
    const hint = `this is a position, not a cursor; ${CURSOR_HINT}`;
    return { message: `${option} has digits only.`, hint };
  }
  try {
    decodeCursor(text, option);
    return null;
  } catch (error) {
    if (isEngineError(error)) return { message: error.message, hint: CURSOR_HINT };
    throw error;
  }
}

/** Prints it like any other error, with its own hint. Returns the exit code. */
export function printRefusal({ message, hint }: Refusal, { printer }: Session): number {
  const code: ErrorCode = 'invalid_cursor';
  printer.aside({ error: { code, message, hint } }, [
    [[`flowfabric: ${message} [${code}]`]],
    [[`hint: ${hint}`]],
  ]);
  return EXIT.usage;
}

/** An engine error about a cursor, reworded to name the option; `remedy` says what to do when its events are gone. */
export function placeAsOption(error: unknown, option: string, remedy: (oldest: string) => string): unknown {
  if (!isEngineError(error) || !CURSOR_CODES.includes(error.code)) return error;
  const { code, message, oldest } = error;
  // The engine's own advice is for programs.
  const named = message.replace(/^(?:from|to) /, `${option} `).replace(/:[^:]*\berror\.oldest\b.*$/s, '.');
  if (oldest === undefined) return new EngineError(code, named, { cause: error });
  return new EngineError(code, `${named} ${remedy(oldest)}`, { oldest, cause: error });
}
