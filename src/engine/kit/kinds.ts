/**
 * The kinds of values that requests of several capabilities share: operators' notes, tags, names and worker
 * capabilities. The general ones are in contract/kinds.ts.
 */
import { LIMITS } from '../../contract/limits.ts';
import {
  anyString,
  list,
  asciiName,
  refusedAs,
  string,
  textFault,
  whole,
} from '../../contract/shape/kinds.ts';
import { fault, faultAt, isObject, Kind } from '../../contract/shape/shape.ts';
import { CAPABILITY_LIMITS, capabilityBytes, capabilityFault } from '../../model/capabilities.ts';

/** Why an operator did something, and who it was. */
export const reasonText = string(LIMITS.reasonBytes);
export const actorName = string(LIMITS.reasonBytes);
export const laneName = asciiName(LIMITS.laneBytes);
export const kindName = asciiName(LIMITS.kindBytes);
export const namespaceName = string(LIMITS.namespaceBytes);
export const workerName = string(LIMITS.workerNameBytes);
export const pageSize = whole(1, LIMITS.listPage);
export const delayTime = whole(0, LIMITS.delayMs);
export const leaseTime = whole(LIMITS.leaseMsMin, LIMITS.leaseMsMax);

const tagKey = string(LIMITS.tagKeyBytes);
const tagValue = string(LIMITS.tagValueBytes, 0);

/** Strings by key, with limits on number and size. */
export function tagsOf(max: number, min: 0 | 1 = 0): Kind<Record<string, string>> {
  return new Kind((value) => {
    if (!isObject(value)) return fault('must be an object of strings');
    const entries = Object.entries(value);
    if (entries.length > max) return fault(`has ${entries.length} tags; the limit is ${max}`, 'too_many');
    if (entries.length < min) return fault('must not be empty');
    for (const [key, tag] of entries) {
      const inKey = tagKey.faultOf(key);
      if (inKey !== undefined) return faultAt(' (a key)', inKey);
      const inValue = tagValue.faultOf(tag);
      if (inValue !== undefined) return faultAt(`.${key}`, inValue);
    }
    return undefined;
  });
}

export const tagMap = tagsOf(LIMITS.tags);

/** Tags as they are stored. The entries are read once more, so what is stored must pass the check itself. */
export function tagsJson(tags: Record<string, string>, field: string): string {
  return JSON.stringify(tagMap.check(Object.fromEntries(Object.entries(tags)), field));
}

const tokens = list(
  new Kind<string>((token) => {
    const inType = anyString.faultOf(token);
    if (inType !== undefined) return inType;
    const what = capabilityFault(token as string) ?? textFault(token as string);
    return what === undefined ? undefined : fault(what);
  }),
  Number.MAX_SAFE_INTEGER,
);

/** Well-formed tokens; the limits count each token once. */
export const capabilityList = refusedAs(
  'invalid_capabilities',
  new Kind<readonly string[]>((value) => {
    const found = tokens.faultOf(value);
    if (found !== undefined) return found;
    const different = [...new Set(value as string[])];
    if (different.length > CAPABILITY_LIMITS.maxTokens) {
      return fault(`has more than ${CAPABILITY_LIMITS.maxTokens} tokens`);
    }
    if (capabilityBytes(different) > CAPABILITY_LIMITS.maxBytes) {
      return fault(`is longer than ${CAPABILITY_LIMITS.maxBytes} bytes in total`);
    }
    return undefined;
  }),
);
