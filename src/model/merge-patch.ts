/**
 * JSON Merge Patch (RFC 7396) on objects, with a text that stands for a null that is meant. The SQL function of the same
 * meaning is held to this one by a test; readers of patches fold them with it.
 */
import type { Json } from '../contract/engine.ts';
import { LIMITS } from '../contract/limits.ts';
import { SUMMARY_NULL } from '../contract/streams.ts';

export type JsonObject = { [key: string]: Json };

/** Members of these names would reach into what is not data. */
const DANGEROUS = ['__proto__', 'constructor', 'prototype'];

export type PatchFault = 'not_an_object' | 'too_deep' | 'dangerous_key';

/** What is wrong with a patch, or undefined. */
export function patchFault(patch: unknown): PatchFault | undefined {
  if (!isObject(patch)) return 'not_an_object';
  return memberFault(patch, 1);
}

function memberFault(value: unknown, depth: number): PatchFault | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth > LIMITS.patchDepth) return 'too_deep';
  if (Object.keys(value).some((key) => DANGEROUS.includes(key))) return 'dangerous_key';
  for (const member of Object.values(value)) {
    const fault = memberFault(member, depth + 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** The document after a patch; neither is changed. */
export function applyPatch(document: JsonObject, patch: JsonObject): JsonObject {
  const result: JsonObject = { ...document };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = applied(Object.hasOwn(document, key) ? document[key]! : null, value);
  }
  return result;
}

function applied(target: Json, value: Json): Json {
  if (!isObject(value)) return meantNulls(value);
  return applyPatch(isObject(target) ? target : {}, value);
}

/** Inside lists members are taken as they are: there is nothing to merge them into. */
function meantNulls(value: Json): Json {
  if (value === SUMMARY_NULL) return null;
  if (Array.isArray(value)) return value.map(meantNulls);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, meantNulls(member)]));
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
