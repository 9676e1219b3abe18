/**
 * Keeps out of the output what must not appear on a screen or in a log: passwords in URLs, tokens, and control characters
 * in stored text that would move the cursor or colour the screen.
 */

const PASSWORD_IN_AUTHORITY = /(\b[a-z][a-z0-9+.-]*:\/\/[^:@/\s]*):\S*@/gi;
const PASSWORD_SETTING = /((?:^|[?&;\s])(?:password|sslpassword)=)[^&;\s]*/gi;
/** Also a token that was cut or mistyped: the rest could be guessed. */
const TOKEN = /ffw\d+_\w+/gi;
const TOKEN_IN_QUERY = /([?&]ff_token=)[^&\s]*/gi;

export function withoutSecrets(text: string): string {
  return text
    .replaceAll(PASSWORD_IN_AUTHORITY, '$1:***@')
    .replaceAll(PASSWORD_SETTING, '$1***')
    .replaceAll(TOKEN_IN_QUERY, '$1***')
    .replaceAll(TOKEN, 'ffw***');
}

/** What would move the cursor, colour the screen or reverse letters: C0 and C1 controls, and bidirectional marks. */
const CONTROLS = /[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]+/gu;

/** User text on one line of a terminal. */
export function printable(text: string): string {
  return text.replaceAll(CONTROLS, ' ').trim();
}

/** Any text for a terminal: newlines and tabs stay. */
export function withoutControls(text: string): string {
  return text.replaceAll(CONTROLS, (run) => run.replaceAll(/[^\n\t]/g, ''));
}

/** The same JSON without such characters: JSON.stringify escapes only C0 controls. */
export function escapedControls(json: string): string {
  const escaped = (character: string): string =>
    `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`;
  return json.replaceAll(CONTROLS, (run) => Array.from(run, escaped).join(''));
}
