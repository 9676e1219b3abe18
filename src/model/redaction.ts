/**
 * What is shown of a value under a redaction.
 */
import type { Json } from '../contract/json.ts';
import { REDACTED, type Redaction } from '../contract/redaction.ts';
import { DEFINITION_LIMITS as LIMITS } from '../contract/definition-limits.ts';
import { fault, Kind } from '../contract/shape/shape.ts';
import { list, string } from '../contract/shape/kinds.ts';

/** Stands for every entry. */
const EVERY = '*';
/** As RFC 6901 has it: `~0` stands for `~`, and `~1` for `/`. */
const POINTER = /^(?:\/(?:[^~/]|~[01])*)+$/;

const pointerText = string(LIMITS.pointerBytes);
const pointer = new Kind<string>((value) => {
  const found = pointerText.faultOf(value);
  if (found !== undefined) return found;
  if (!POINTER.test(value as string)) return fault('must be a JSON pointer, such as /card/number');
  const parts = (value as string).split('/').length - 1;
  return parts > LIMITS.pointerParts
    ? fault(`has ${parts} parts; the limit is ${LIMITS.pointerParts}`)
    : undefined;
});
const pointers = list(pointer, LIMITS.pointers, 1);

/** Anything else is refused: a redaction that means nothing would hide nothing. */
export const redactionKind = new Kind<Redaction>((value) => {
  if (value === true) return undefined;
  return Array.isArray(value) ? pointers.faultOf(value) : fault('must be true or a list of JSON pointers');
});

/** The value with what the redaction covers replaced. The value itself is not changed. */
export function shownValue(value: Json, redaction: Redaction): Json {
  if (redaction === true) return REDACTED;
  let shown = value;
  for (const text of redaction) shown = hidden(shown, partsOf(text), 0);
  return shown;
}

function partsOf(text: string): string[] {
  return text
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function hidden(value: Json, parts: readonly string[], from: number): Json {
  if (from === parts.length) return REDACTED;
  if (typeof value !== 'object' || value === null) return value;
  const part = parts[from]!;
  if (Array.isArray(value)) {
    return value.map((each, index) =>
      part === EVERY || part === String(index) ? hidden(each, parts, from + 1) : each,
    );
  }
  // Entries are defined, not assigned: `__proto__` is a name like any other.
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [
      name,
      part === EVERY || part === name ? hidden(each, parts, from + 1) : each,
    ]),
  );
}
