/**
 * JSON Merge Patch (RFC 7396), with a string that stands for an intended null. Readers fold patches with it; a test
 * compares the SQL function of the same meaning with this one.
 */
import type { Json } from '../contract/json.ts';
import { DEFINITION_LIMITS as LIMITS } from '../contract/definition-limits.ts';
import { SUMMARY_NULL } from '../contract/streams.ts';
import { isObject as isAnyObject, refuse } from '../contract/shape/shape.ts';

export type JsonObject = { [key: string]: Json };

/** Keys that would reach an object's prototype instead of its data. */
const DANGEROUS = ['__proto__', 'constructor', 'prototype'];

export type PatchFault = 'not_an_object' | 'too_deep' | 'dangerous_key';

/** What is wrong with a patch, or undefined. */
export function patchFault(patch: unknown): PatchFault | undefined {
  if (!isObject(patch)) return 'not_an_object';
  return valueFault(patch, 1);
}

function valueFault(value: unknown, depth: number): PatchFault | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth > LIMITS.patchDepth) return 'too_deep';
  if (Object.keys(value).some((key) => DANGEROUS.includes(key))) return 'dangerous_key';
  for (const inner of Object.values(value)) {
    const fault = valueFault(inner, depth + 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** The document after a patch; neither argument is changed. A patch that is not an object replaces the document. */
export function applyPatch(document: Json, patch: JsonObject): JsonObject;
export function applyPatch(document: Json, patch: Json): Json;
export function applyPatch(document: Json, patch: Json): Json {
  return applied(document, patch, 0);
}

function applied(target: Json, patch: Json, depth: number): Json {
  if (!isObject(patch)) return meantNulls(patch, depth);
  refuseTooDeep(depth);
  const document = isObject(target) ? target : {};
  const result = new Map(Object.entries(document));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) result.delete(key);
    else result.set(key, applied(result.get(key) ?? null, value, depth + 1));
  }
  // Built from entries, so that no key reaches the prototype.
  return Object.fromEntries(result);
}

/** The patch that makes `to` of `from`. */
export function patchBetween(from: JsonObject, to: JsonObject): JsonObject {
  const gone = Object.keys(from).filter((key) => !Object.hasOwn(to, key));
  const entries = Object.entries(to).flatMap(([key, value]): [string, Json][] => {
    const before = Object.hasOwn(from, key) ? from[key]! : undefined;
    if (before === undefined || !isObject(before) || !isObject(value))
      return before !== undefined && isSame(before, value) ? [] : [[key, setting(value)]];
    const inner = patchBetween(before, value);
    return Object.keys(inner).length === 0 ? [] : [[key, inner]];
  });
  return Object.fromEntries([...gone.map((key): [string, Json] => [key, null]), ...entries]);
}

/** A value as a patch sets it: null is meant. */
function setting(value: Json): Json {
  if (value === null) return SUMMARY_NULL;
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, setting(inner)]));
}

function isSame(one: Json, other: Json): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Objects inside lists are taken as they are: there is nothing to merge them into. */
function meantNulls(value: Json, depth: number): Json {
  if (value === SUMMARY_NULL) return null;
  if (typeof value !== 'object' || value === null) return value;
  refuseTooDeep(depth);
  if (Array.isArray(value)) return value.map((inner) => meantNulls(inner, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, meantNulls(inner, depth + 1)]));
}

function refuseTooDeep(depth: number): void {
  if (depth >= LIMITS.jsonDepth)
    refuse('patch', `is nested deeper than ${LIMITS.jsonDepth} levels, or contains itself`);
}

function isObject(value: unknown): value is JsonObject {
  return isAnyObject(value);
}
