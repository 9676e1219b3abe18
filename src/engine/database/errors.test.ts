/**
 * How the driver's errors are read: which code, whether they pass, and what their text may say.
 */
import { describe, expect, it } from 'vitest';
import { isConnectionLost, sqlStateOf, toEngineError } from './errors.ts';

const failing = (code: string, more: object = {}) =>
  Object.assign(new Error('from the driver'), { code, ...more });

describe('an error of the driver', () => {
  it.each(['EPIPE', 'ECONNRESET', 'ENETUNREACH', '57P01', '08006', '25006', 'EMFILE'])(
    '%s means unavailable',
    (code) => {
      expect(toEngineError(failing(code), 'testing').code).toBe('unavailable');
    },
  );

  it.each([
    ['53300', 'no_connection'],
    ['57014', 'statement_cancelled'],
    ['40P01', 'contention'],
    ['42501', 'permission_denied'],
    ['25P02', 'retry_transaction'],
    ['22012', 'database_error'],
  ])('%s means %s', (state, code) => {
    expect(toEngineError(failing(state), 'testing')).toMatchObject({ code, sqlState: state });
  });

  it('is found inside the errors other libraries wrap it in', () => {
    const wrapped = new Error('query failed', { cause: new Error('deeper', { cause: failing('40001') }) });
    expect(toEngineError(wrapped, 'testing')).toMatchObject({ code: 'contention', sqlState: '40001' });
  });

  it.each(['P2010', 'EPIPE', 'abc', '1234'])('with the code %s has no SQLSTATE', (code) => {
    expect(sqlStateOf(failing(code))).toBeUndefined();
  });

  it('that could not connect says where to, and quotes nothing else', () => {
    const refused = failing('ECONNREFUSED', { address: '127.0.0.1', port: 5432 });
    expect(toEngineError(refused, 'testing').message).toBe(
      'While testing: the database could not be reached (ECONNREFUSED 127.0.0.1:5432).',
    );
  });

  it('that never reached the database says so', () => {
    expect(toEngineError(new Error('SASL: no password'), 'testing').message).toMatch(
      /before it reached the database/,
    );
  });
});

describe('a lost connection', () => {
  it.each([
    ['08006', true, true],
    ['57P01', true, true],
    ['25P03', true, false],
    ['25P04', true, false],
    ['ECONNRESET', true, false],
    ['57014', false, false],
    ['40001', false, false],
  ])('%s: for anything %s, for the server %s', (code, anything, server) => {
    const error = failing(code);
    expect([isConnectionLost(error), isConnectionLost(error, 'server')]).toEqual([anything, server]);
  });
});
