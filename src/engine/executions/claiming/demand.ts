/**
 * What a worker wants to run, checked and in the form routes are matched with.
 */
import type { Interest } from '../../../contract/protocol.ts';
import { list } from '../../../contract/shape/kinds.ts';
import { openShape, type Shape } from '../../../contract/shape/shape.ts';
import { normaliseCapabilities } from '../../../model/capabilities.ts';
import type { RouteDemand } from '../../../model/routes.ts';
import { capabilityList, kindName, laneName } from '../../kit/kinds.ts';

/** Kinds or lanes one worker may name. */
const MAX_NAMES = 10_000;

/** The keys that claims and registrations share. */
export const interestFields = {
  kinds: list(kindName, MAX_NAMES),
  lanes: list(laneName, MAX_NAMES).optional(),
  capabilities: capabilityList.optional(),
};

export const interestShape: Shape<Interest> = openShape<Interest>(interestFields);

/** Takes a checked interest, claim or registration. */
export function demandOf({ kinds, lanes, capabilities: offered }: Interest): RouteDemand {
  return {
    kinds: new Set(kinds),
    lanes: lanes === undefined ? undefined : new Set(lanes),
    capabilities: new Set(normaliseCapabilities(offered ?? [])),
  };
}
