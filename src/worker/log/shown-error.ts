/**
 * What is shown of an error in one line: its class, its message and where in the user's code it comes from.
 */
import { isEngineError } from '../../contract/errors.ts';
import { REDACTED } from '../../contract/redaction.ts';
import { shownText } from './cut.ts';
import { ownFrame } from './own-frame.ts';

export interface ShownError {
  readonly name: string;
  readonly message: string;
  readonly at: string | undefined;
  readonly text: string;
}

/** Never throws. `message` replaces the error's own, where more is known than that. */
export function shownError(thrown: unknown, message?: string): ShownError {
  const name = shownText(classOf(thrown));
  const said = shownText(message ?? messageOf(thrown));
  const at = ownFrame(thrown);
  const text = `${said.startsWith(name) ? '' : `${name}: `}${said}${at === undefined ? '' : ` at ${at}`}`;
  return { name, message: said, at, text };
}

/** An error whose message, and whatever else it has, may contain redacted values. */
export function hiddenError(thrown: unknown): ShownError & { thrown: object } {
  const shown = shownError(thrown, REDACTED);
  return { ...shown, thrown: { name: shown.name, message: REDACTED } };
}

/** The name that its author gave it; else its class, which is not set as the name of most errors. */
export function classOf(thrown: unknown): string {
  try {
    if (!(thrown instanceof Error)) return typeof thrown;
    if (isEngineError(thrown)) return `EngineError ${thrown.code}`;
    return thrown.name === 'Error' ? thrown.constructor.name || 'Error' : String(thrown.name);
  } catch {
    return 'Error';
  }
}

export function messageOf(thrown: unknown): string {
  try {
    return thrown instanceof Error ? String(thrown.message) : String(thrown);
  } catch {
    return 'a value that cannot be converted to a string';
  }
}
