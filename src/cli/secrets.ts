/**
 * Keeps what must not be read over a shoulder or in a log out of what is printed: passwords in URLs, tokens, and control
 * characters that would move the cursor or colour the screen from inside stored text.
 */

const PASSWORD_IN_AUTHORITY = /(\b[a-z][a-z0-9+.-]*:\/\/[^:@/\s]*):\S*@/gi;
const PASSWORD_IN_QUERY = /([?&](?:password|sslpassword)=)[^&\s]*/gi;
/** Also one that was cut short or mistyped: the rest may be guessed. */
const TOKEN = /ffw\d+_\w+/gi;
const TOKEN_IN_QUERY = /([?&]ff_token=)[^&\s]*/gi;

export function withoutSecrets(text: string): string {
  return text
    .replaceAll(PASSWORD_IN_AUTHORITY, '$1:***@')
    .replaceAll(PASSWORD_IN_QUERY, '$1***')
    .replaceAll(TOKEN_IN_QUERY, '$1***')
    .replaceAll(TOKEN, 'ffw***');
}

/** What would move the cursor, colour the screen or turn letters round, whichever half of the controls it is from. */
const CONTROLS = /[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]+/gu;

/** Text of others on one line of a terminal. */
export function printable(text: string): string {
  return text.replaceAll(CONTROLS, ' ').trim();
}

/** Text for a terminal, whatever it is made of: new lines and tabs stay. */
export function withoutControls(text: string): string {
  return text.replaceAll(CONTROLS, (run) => run.replaceAll(/[^\n\t]/g, ''));
}

/** JSON that says the same and holds no such character: JSON itself escapes only the older half of them. */
export function escapedControls(json: string): string {
  const escaped = (character: string): string =>
    `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`;
  return json.replaceAll(CONTROLS, (run) => Array.from(run, escaped).join(''));
}
