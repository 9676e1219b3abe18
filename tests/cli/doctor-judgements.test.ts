/**
 * What the doctor makes of facts that are hard to bring about on a test server: poolers, other versions, standbys,
 * full servers, prepared transactions.
 */
import { describe, expect, it } from 'vitest';
import {
  judgeBloat,
  judgeClock,
  judgeConnections,
  judgeDurability,
  judgeEcho,
  judgeFeed,
  judgePooler,
  judgeRoutes,
  judgeTransactions,
  judgeVersion,
  judgeWriting,
} from '../../src/engine/operator/doctor-judgements.ts';
import type { ServerFacts } from '../../src/engine/operator/doctor.sql.ts';

const SERVER: ServerFacts = {
  version: '18.1',
  versionNumber: 180_001,
  role: 'app',
  isSuperuser: false,
  isStandby: false,
  settings: {
    autovacuum: 'on',
    default_transaction_isolation: 'read committed',
    default_transaction_read_only: 'off',
    fsync: 'on',
    full_page_writes: 'on',
    max_connections: '100',
    reserved_connections: '0',
    superuser_reserved_connections: '3',
    synchronous_commit: 'on',
  },
  connections: 20,
  roleLimit: -1,
  databaseLimit: -1,
};

describe('the doctor judges', () => {
  it.each([
    [140_010, 'problem'],
    [150_000, 'ok'],
    [180_004, 'ok'],
    [190_000, 'warn'],
  ])('server version number %i as %s', (versionNumber, verdict) => {
    expect(judgeVersion({ ...SERVER, versionNumber }).verdict).toBe(verdict);
  });

  it('synchronous_commit that is off as a warning, to be mended for the role', () => {
    const settings = { ...SERVER.settings, synchronous_commit: 'off' };
    expect(judgeDurability(SERVER).verdict).toBe('ok');
    expect(judgeDurability({ ...SERVER, settings })).toMatchObject({
      verdict: 'warn',
      fix: `ALTER ROLE "app" SET synchronous_commit TO 'on';`,
    });
  });

  it('a feed by its failing and late consumers, and by events without a position', () => {
    const feed = { unstamped: 0, epoch: 0, consumers: 0, late: null, failing: null };
    expect(judgeFeed(feed).verdict).toBe('ok');
    expect(judgeFeed({ ...feed, epoch: 2 }).detail).toContain('jumped 2 times');
    expect(judgeFeed({ ...feed, unstamped: 3 })).toMatchObject({ verdict: 'warn' });
    const late = { name: 'billing', lagMs: 7_200_000 };
    expect(judgeFeed({ ...feed, late }).detail).toContain('2 hours behind');
    const failing = { name: 'billing', failures: 5, errorCode: '23505' };
    expect(judgeFeed({ ...feed, failing })).toMatchObject({
      verdict: 'problem',
      fix: 'flowfabric consumers list',
    });
  });

  it('routes by how many there may still be', () => {
    const verdicts = [0, 4_999, 5_000, 9_999, 10_000].map((count) => judgeRoutes(count).verdict);
    expect(verdicts).toEqual(['ok', 'ok', 'warn', 'warn', 'problem']);
    expect(judgeRoutes(5_000)).toMatchObject({
      detail: expect.stringContaining('the limit is 10000') as string,
      fix: expect.stringMatching(/fewer lanes.*tag/) as string,
    });
  });

  it('a standby and read-only transactions as problems', () => {
    const settings = { ...SERVER.settings, default_transaction_read_only: 'on' };
    expect(judgeWriting(SERVER).verdict).toBe('ok');
    expect(judgeWriting({ ...SERVER, isStandby: true }).verdict).toBe('problem');
    expect(judgeWriting({ ...SERVER, settings }).verdict).toBe('problem');
  });

  it.each([
    [{ first: [1, 1], second: [2, 2] }, 'ok'],
    [{ first: [1, 1], second: [1, 1] }, 'warn'],
    [{ first: [1, 2], second: [3, 3] }, 'warn'],
    [{ first: [1, 1], second: [2, 3] }, 'warn'],
  ])('connections answered by processes %j as %s', (pids, verdict) => {
    expect(judgePooler(pids, 'same').verdict).toBe(verdict);
    expect(judgePooler(pids, 'separate').verdict).toBe('ok');
  });

  it('a listening connection that cannot be opened as a warning', () => {
    expect(judgeEcho('unopened', 5_000)).toMatchObject({ verdict: 'warn' });
  });

  it.each([
    [{}, 10, 'ok'],
    [{ connections: 90 }, 10, 'warn'],
    [{ roleLimit: 10 }, 10, 'problem'],
    [{ roleLimit: 10, isSuperuser: true }, 10, 'ok'],
    [{ databaseLimit: 30 }, 10, 'warn'],
    [{}, 97, 'problem'],
  ])('a server with %j and a pool of %i as %s', (facts, poolSize, verdict) => {
    expect(judgeConnections({ ...SERVER, ...facts }, poolSize).verdict).toBe(verdict);
  });

  it('autovacuum that is off as a warning, and many dead rows beside more live ones as nothing', () => {
    const tables = [{ table: 'ff_ready', live: 100_000, dead: 50_000 }];
    expect(judgeBloat(tables, SERVER, 's').verdict).toBe('ok');
    const settings = { ...SERVER.settings, autovacuum: 'off' };
    expect(judgeBloat(tables, { ...SERVER, settings }, 's')).toMatchObject({ verdict: 'warn' });
  });

  it('an old transaction at work as a warning and a prepared one as a problem', () => {
    const oldest = { pid: 7, prepared: null, application: '', role: 'r', state: 'active', ageMs: 600_000 };
    expect(judgeTransactions({ oldest, hidden: 0 }, SERVER, 300_000)).toMatchObject({ verdict: 'warn' });
    const prepared = { ...oldest, pid: null, prepared: `it's`, state: 'prepared' };
    expect(judgeTransactions({ oldest: prepared, hidden: 0 }, SERVER, 300_000)).toMatchObject({
      verdict: 'problem',
      fix: `ROLLBACK PREPARED 'it''s';`,
    });
  });

  it('sessions it may not see as ok, and prints how to see them', () => {
    expect(judgeTransactions({ oldest: undefined, hidden: 3 }, SERVER, 1)).toMatchObject({
      verdict: 'ok',
      detail: expect.stringContaining('3 sessions of other roles'),
      fix: 'GRANT pg_read_all_stats TO "app";',
    });
  });

  it('a clock by what is left when the slowness of the answer is taken off', () => {
    expect(judgeClock(1_500, 0).verdict).toBe('warn');
    expect(judgeClock(-1_500, 2_000).verdict).toBe('ok');
  });
});
