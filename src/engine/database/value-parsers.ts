/**
 * How the engine reads the values its own statements answer. An application may replace the parsers of its driver, for the whole
 * process or for a pool of its own; the engine brings these along with each statement instead.
 */
type Parse = (text: string) => unknown;

const asText: Parse = (text) => text;
const asBoolean: Parse = (text) => text === 't';
const asJson: Parse = (text) => JSON.parse(text) as unknown;

/** In either of the two ways a server may be set to write them (`bytea_output`). */
const asBytes: Parse = (text) => {
  if (text.startsWith('\\x')) return Buffer.from(text.slice(2), 'hex');
  const bytes = text.replaceAll(/\\(?:(\d{3})|(.))/g, (_, octal: string | undefined, char: string) =>
    octal === undefined ? char : String.fromCodePoint(Number.parseInt(octal, 8)),
  );
  return Buffer.from(bytes, 'latin1');
};

const ELEMENT = /"((?:[^"\\]|\\.)*)"|[^,{}]+/gs;

/** Of one dimension. */
const listOf =
  (parse: Parse): Parse =>
  (text) =>
    Array.from(text.matchAll(ELEMENT), ([bare, quoted]) => {
      if (quoted !== undefined) return parse(quoted.replaceAll(/\\(.)/gs, '$1'));
      return bare === 'NULL' ? null : parse(bare);
    });

/**
 * By the number Postgres gives a type. Whole numbers are numbers: times and epochs stay far below 2^53. Feed positions travel as texts.
 * What is not here is read as text.
 */
const PARSERS: Readonly<Record<number, Parse>> = {
  16: asBoolean,
  17: asBytes,
  20: Number,
  21: Number,
  23: Number,
  26: Number,
  114: asJson,
  700: Number,
  701: Number,
  1000: listOf(asBoolean),
  1005: listOf(Number),
  1007: listOf(Number),
  1009: listOf(asText),
  1015: listOf(asText),
  1016: listOf(Number),
  2951: listOf(asText),
  3802: asJson,
  3807: listOf(asJson),
};

/** As `pg` takes it: with a statement, or with a connection. */
export const VALUE_PARSERS = {
  getTypeParser(oid: number): Parse {
    return PARSERS[oid] ?? asText;
  },
};
