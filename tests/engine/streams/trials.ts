/**
 * What streams must refuse, tried one bad value after the other: a code, the field and a sentence each, and no row
 * written anywhere.
 */
import { describe, expect, it } from 'vitest';
import { isEngineError, type ErrorCode } from '../../../src/index.ts';
import type { Bench } from '../../conformance/open.ts';
import { rowCounts, type Values } from '../refused.ts';

export const NUMBERS: Values = { zero: 0, negative: -1, 'a fraction': 1.5, NaN: Number.NaN, text: '5' };

export interface Trial {
  title: string;
  call: (value: unknown) => unknown;
  field: string;
  values: Values;
  /** Default `invalid_input`. */
  code?: ErrorCode;
  says?: RegExp;
}

const SENTENCE = /^\S.*\.$/s;

async function refuse(name: string, value: unknown, trial: Trial): Promise<void> {
  const { call, field, code = 'invalid_input', says = SENTENCE } = trial;
  const error: unknown = await Promise.resolve()
    .then(() => call(value))
    .then(
      (answer) => `was accepted: ${JSON.stringify(answer)}`,
      (thrown: unknown) => thrown,
    );
  const told = isEngineError(error) ? { code: error.code, field: error.field } : error;
  expect(told, `${name}:`).toEqual({ code, field });
  expect((error as Error).message, `${name}:`).toMatch(says);
  expect((error as Error).message, `${name}:`).toMatch(SENTENCE);
}

export function refuseAll(bench: Bench, groups: Record<string, readonly Trial[]>): void {
  describe.each(Object.entries(groups))('%s', (_, trials) => {
    for (const trial of trials) {
      it(`are refused: ${trial.title}`, async () => {
        const before = await rowCounts(bench.database);
        for (const [name, value] of Object.entries(trial.values)) await refuse(name, value, trial);
        expect(await rowCounts(bench.database)).toEqual(before);
      });
    }
  });
}
