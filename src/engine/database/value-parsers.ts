/**
 * How the engine parses the values its own statements return. An application may replace the parsers of its driver, for
 * the whole process or for its pool; the engine therefore passes these along with each statement.
 */
type Parse = (text: string) => unknown;

const asText: Parse = (text) => text;
const asBoolean: Parse = (text) => text === 't';
const asJson: Parse = (text) => JSON.parse(text) as unknown;

/** In either of the two formats of `bytea_output`. */
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
 * By the OID of the type. Integers become numbers: times and epochs stay far below 2^53. Feed positions are sent as
 * strings. Types that are not listed are read as strings.
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

/** In the form `pg` accepts with a statement or a connection. */
export const VALUE_PARSERS = {
  getTypeParser(oid: number): Parse {
    return PARSERS[oid] ?? asText;
  },
};
