/**
 * Checks of single arguments. Each refuses with a code, the field and a sentence, before anything is written.
 * Values are never coerced: a number that is out of range is refused, not clamped.
 */
import type { ErrorCode } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import { checkText, refuse, textFault } from '../../model/arguments.ts';
import {
  CAPABILITY_LIMITS,
  capabilityBytes,
  capabilityFault,
  normaliseCapabilities,
} from '../../model/capabilities.ts';

export { checkText, refuse };

/** A name of printable ASCII: it travels in index keys, logs and command lines. */
export function checkName(value: unknown, field: string, maxBytes: number): string {
  const name = checkText(value, field, maxBytes);
  if (!/^[\x20-\x7e]+$/.test(name)) refuse(field, 'must be printable ASCII');
  return name;
}

/** A whole number in a closed range. */
export function checkWhole(value: unknown, field: string, min: number, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    refuse(field, `must be a whole number from ${min} to ${max}`);
  }
  return value;
}

export function checkList<Item>(value: readonly Item[], field: string, max: number): readonly Item[] {
  if (!Array.isArray(value)) refuse(field, 'must be a list');
  if (value.length > max) refuse(field, `has ${value.length} entries; the limit is ${max}`, 'too_many');
  checkFilled(value, field);
  return value;
}

/** Loops pass over holes: what is asked for them would be answered for others. */
function checkFilled(value: readonly unknown[], field: string, code?: ErrorCode): void {
  for (let index = 0; index < value.length; index += 1)
    if (!(index in value)) refuse(`${field}[${index}]`, 'is missing', code);
}

/** Sorted, without repeats; malformed tokens are refused. */
export function checkCapabilities(value: readonly unknown[], field: string): string[] {
  if (!Array.isArray(value)) refuse(field, 'must be a list', 'invalid_capabilities');
  checkFilled(value, field, 'invalid_capabilities');
  value.forEach((token: unknown, index) => checkCapability(token, `${field}[${index}]`));
  const tokens = normaliseCapabilities(value as string[]);
  if (tokens.length > CAPABILITY_LIMITS.maxTokens) {
    refuse(field, `has more than ${CAPABILITY_LIMITS.maxTokens} tokens`, 'invalid_capabilities');
  }
  if (capabilityBytes(tokens) > CAPABILITY_LIMITS.maxBytes) {
    refuse(field, `is longer than ${CAPABILITY_LIMITS.maxBytes} bytes together`, 'invalid_capabilities');
  }
  return tokens;
}

function checkCapability(token: unknown, field: string): void {
  if (typeof token !== 'string') refuse(field, 'must be a string', 'invalid_capabilities');
  const fault = capabilityFault(token) ?? textFault(token);
  if (fault !== undefined) refuse(field, fault, 'invalid_capabilities');
}

/** Text to text, with limits on number and size. */
export function checkTags(value: unknown, field: string): Record<string, string> {
  if (Object.prototype.toString.call(value) !== '[object Object]') {
    refuse(field, 'must be an object of strings');
  }
  const entries = Object.entries(value as object);
  if (entries.length > LIMITS.tags)
    refuse(field, `has ${entries.length} tags; the limit is ${LIMITS.tags}`, 'too_many');
  for (const [key, tag] of entries) {
    checkText(key, `${field} (a key)`, LIMITS.tagKeyBytes);
    if (typeof tag !== 'string') refuse(`${field}.${key}`, 'must be a string');
    if (tag.length > 0) checkText(tag, `${field}.${key}`, LIMITS.tagValueBytes);
  }
  return value as Record<string, string>;
}

/** Cuts a text to a number of bytes without splitting a character; what Postgres cannot store is replaced. */
export function cutText(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text.replaceAll('\u0000', '\uFFFD'));
  if (bytes.length <= maxBytes) return bytes.toString();
  return new TextDecoder().decode(bytes.subarray(0, maxBytes), { stream: true });
}

/** Anything that acts as a signal is one: it may come from another realm, or stand in for one. */
export function checkSignal(signal: unknown, field: string): AbortSignal | undefined {
  if (signal === undefined) return undefined;
  const given = signal as AbortSignal | null;
  const listens =
    typeof given?.addEventListener === 'function' && typeof given.removeEventListener === 'function';
  if (!listens || typeof given.aborted !== 'boolean') refuse(field, 'must be an AbortSignal');
  return given;
}
