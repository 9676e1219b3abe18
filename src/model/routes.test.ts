/**
 * Which routes a worker may claim from. Kind and lane match by exact name; capabilities match by inclusion, which has
 * its own test.
 */
import { describe, expect, it } from 'vitest';
import { routeMatches, type Route, type RouteDemand } from './routes.ts';

const ROUTE: Route = { routeId: 7, lane: 'default', kind: 'email.send', capabilities: [] };

function demand(change: Partial<RouteDemand> = {}): RouteDemand {
  return { kinds: new Set(['email.send']), capabilities: new Set(), ...change };
}

describe('a worker', () => {
  it.each<[string, Partial<RouteDemand>, boolean]>([
    ['claims its kinds from every lane when it names none', {}, true],
    ['claims its kinds from every lane when its lanes are undefined', { lanes: undefined }, true],
    ['claims its kinds from a lane it names', { lanes: new Set(['other', 'default']) }, true],
    ['ignores lanes it does not name', { lanes: new Set(['other']) }, false],
    ['claims nothing when its list of lanes is empty', { lanes: new Set() }, false],
    ['ignores kinds it has no handler for', { kinds: new Set(['email.read']) }, false],
    ['claims nothing when it has no handler', { kinds: new Set() }, false],
    ['matches kinds by exact name', { kinds: new Set(['email', 'EMAIL.SEND', 'email.send ']) }, false],
    ['matches lanes by exact name', { lanes: new Set(['Default', 'default ']) }, false],
    ['claims work that requires nothing, whatever it offers', { capabilities: new Set(['gpu']) }, true],
  ])('%s', (_sentence, change, matches) => {
    expect(routeMatches(ROUTE, demand(change))).toBe(matches);
  });

  it.each<[string, string[], string[], boolean]>([
    ['that offers all of them', ['eu', 'gpu'], ['gpu', 'eu', 'fast'], true],
    ['that lacks one', ['eu', 'gpu'], ['gpu'], false],
    ['that offers none', ['gpu'], [], false],
    ['that spells one differently', ['gpu'], ['GPU'], false],
  ])('%s is matched with work that requires capabilities', (_who, required, offered, matches) => {
    const route: Route = { ...ROUTE, capabilities: required };
    expect(routeMatches(route, demand({ capabilities: new Set(offered) }))).toBe(matches);
  });

  it('must match lane, kind and capabilities at once', () => {
    const route: Route = { ...ROUTE, capabilities: ['gpu'] };
    const fitting = { lanes: new Set(['default']), capabilities: new Set(['gpu']) };
    expect(routeMatches(route, demand(fitting))).toBe(true);
    expect(routeMatches(route, demand({ ...fitting, kinds: new Set(['other']) }))).toBe(false);
    expect(routeMatches(route, demand({ ...fitting, lanes: new Set(['other']) }))).toBe(false);
    expect(routeMatches(route, demand({ ...fitting, capabilities: new Set(['cpu']) }))).toBe(false);
  });
});
