/**
 * Which routes a worker may take work from. Kind and lane are names and match exactly; capabilities match by
 * inclusion, which has its own test.
 */
import { describe, expect, it } from 'vitest';
import { routeMatches, type Route, type RouteDemand } from './routes.ts';

const ROUTE: Route = { routeId: 7, lane: 'default', kind: 'email.send', capabilities: [] };

function demand(change: Partial<RouteDemand> = {}): RouteDemand {
  return { kinds: new Set(['email.send']), capabilities: new Set(), ...change };
}

describe('a worker', () => {
  it.each<[string, Partial<RouteDemand>, boolean]>([
    ['takes its kind from every lane when it names none', {}, true],
    ['takes its kind from every lane when its lanes are undefined', { lanes: undefined }, true],
    ['takes its kind from a lane it names', { lanes: new Set(['other', 'default']) }, true],
    ['leaves the lanes it does not name', { lanes: new Set(['other']) }, false],
    ['leaves everything when it names no lane at all', { lanes: new Set() }, false],
    ['leaves kinds it has no handler for', { kinds: new Set(['email.read']) }, false],
    ['leaves everything when it has no handler', { kinds: new Set() }, false],
    ['takes kinds by their exact name', { kinds: new Set(['email', 'EMAIL.SEND', 'email.send ']) }, false],
    ['takes lanes by their exact name', { lanes: new Set(['Default', 'default ']) }, false],
    ['takes work that needs nothing, whatever it offers', { capabilities: new Set(['gpu']) }, true],
  ])('%s', (_sentence, change, matches) => {
    expect(routeMatches(ROUTE, demand(change))).toBe(matches);
  });

  it.each<[string, string[], string[], boolean]>([
    ['that offers all of them', ['eu', 'gpu'], ['gpu', 'eu', 'fast'], true],
    ['that lacks one', ['eu', 'gpu'], ['gpu'], false],
    ['that offers none', ['gpu'], [], false],
    ['that spells one differently', ['gpu'], ['GPU'], false],
  ])('%s is judged for work that requires capabilities', (_who, required, offered, matches) => {
    const route: Route = { ...ROUTE, capabilities: required };
    expect(routeMatches(route, demand({ capabilities: new Set(offered) }))).toBe(matches);
  });

  it('must match in all three at once', () => {
    const route: Route = { ...ROUTE, capabilities: ['gpu'] };
    const fitting = { lanes: new Set(['default']), capabilities: new Set(['gpu']) };
    expect(routeMatches(route, demand(fitting))).toBe(true);
    expect(routeMatches(route, demand({ ...fitting, kinds: new Set(['other']) }))).toBe(false);
    expect(routeMatches(route, demand({ ...fitting, lanes: new Set(['other']) }))).toBe(false);
    expect(routeMatches(route, demand({ ...fitting, capabilities: new Set(['cpu']) }))).toBe(false);
  });
});
