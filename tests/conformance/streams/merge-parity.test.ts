/**
 * Patches are applied by the database and, for readers, with `applyPatch`: on generated documents and patches, one
 * after the other, both must produce the same.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SUMMARY_NULL } from '../../../src/contract/streams.ts';
import { applyPatch, type Json } from '../../../src/index.ts';
import { useBench } from '../open.ts';

const bench = useBench();

const SEED = 7_396;
const CHAINS = 300;
const PATCHES_EACH = 4;

type JsonObject = { [key: string]: Json };

/** Few names, so that patches overlap; some are special in one of the two languages. */
const key = fc.constantFrom('', 'a', 'b', 'c', 'a.b', '0', '$', '"', '\\', 'é', 'toString', SUMMARY_NULL);
const scalar = fc.oneof(
  fc.constantFrom<Json>(null, true, false, SUMMARY_NULL, `${SUMMARY_NULL} `, '', '0', 'null', '{}'),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => n + 0),
  // What Postgres cannot store is refused before.
  fc.string({ unit: 'grapheme-composite' }).map((text) => text.replaceAll('\u0000', '')),
);
const { patch } = fc.letrec<{ value: Json; patch: JsonObject }>((tie) => ({
  value: fc.oneof({ depthSize: 'small' }, scalar, tie('patch'), fc.array(tie('value'), { maxLength: 4 })),
  patch: fc.dictionary(key, tie('value'), { maxKeys: 5, noNullPrototype: true }),
}));

const chains = fc
  .sample(fc.array(patch, { minLength: PATCHES_EACH, maxLength: PATCHES_EACH }), {
    seed: SEED,
    numRuns: CHAINS,
  })
  .map((patches) => patches as JsonObject[]);

it('a document is the same wherever its patches are applied', async () => {
  const { rows } = await bench.database.query<{ chain: number; place: number; document: JsonObject }>(
    `WITH RECURSIVE folded AS (
       SELECT chain, 0 AS place, '{}'::jsonb AS document, patches
       FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY x(patches, chain)
       UNION ALL
       SELECT chain, place + 1, ff_merge_patch(document, patches -> place), patches
       FROM folded WHERE place < jsonb_array_length(patches))
     SELECT chain::integer, place, document FROM folded WHERE place > 0 ORDER BY chain, place`,
    [JSON.stringify(chains)],
  );
  const model = chains.flatMap((patches) => {
    let document: JsonObject = {};
    return patches.map((one) => (document = applyPatch(document, one)));
  });
  expect(rows).toHaveLength(CHAINS * PATCHES_EACH);
  expect(rows.map(({ document }) => document)).toEqual(model);
});

it('a document is what its patches make when they are appended, together or one by one', async () => {
  const few = chains.slice(0, 20);
  for (const patches of few) {
    const claim = await bench.running();
    const frames = patches.map((payload) => ({ payload, mode: 'summary' as const }));
    await bench.port.appendFrames(claim, frames.slice(0, 2));
    for (const frame of frames.slice(2)) await bench.port.appendFrames(claim, [frame]);
    let document: JsonObject = {};
    for (const one of patches) document = applyPatch(document, one);
    const found = await bench.engine.streams.readSummary(claim.executionId);
    expect(found).toMatchObject({ version: patches.length });
    expect(found!.document).toEqual(document);
  }
});
