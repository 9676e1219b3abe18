/**
 * What a worker asks for, checked and in the form routes are matched with.
 */
import type { Interest } from '../../../contract/protocol.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { RouteDemand } from '../../../model/routes.ts';
import { checkCapabilities, checkList, checkName, refuse } from '../../kit/checks.ts';

/** Kinds or lanes one worker may name. */
const MAX_NAMES = 10_000;

export function checkDemand(interest: Interest): RouteDemand {
  if (typeof interest !== 'object' || interest === null) refuse('interest', 'must be an object');
  const { kinds, lanes } = interest;
  return {
    kinds: checkNames(kinds, 'kinds', LIMITS.kindBytes),
    lanes: lanes === undefined ? undefined : checkNames(lanes, 'lanes', LIMITS.laneBytes),
    capabilities: new Set(checkCapabilities(interest.capabilities ?? [], 'capabilities')),
  };
}

function checkNames(names: readonly string[], field: string, maxBytes: number): ReadonlySet<string> {
  checkList(names, field, MAX_NAMES);
  return new Set(names.map((name, index) => checkName(name, `${field}[${index}]`, maxBytes)));
}
