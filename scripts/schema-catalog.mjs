/**
 * Reads one schema from the Postgres catalog, as rows ready to print. Reads only facts that every supported server
 * version reports alike: function bodies as text rather than as formatted definitions, views as their columns, and no
 * constraints of the kind that newer servers store for NOT NULL. The format is not decided here.
 */

/** Objects that belong to an extension are not ours. */
const NOT_FROM_EXTENSION = (catalog, oid) =>
  `NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = '${catalog}'::regclass AND d.objid = ${oid} AND d.deptype = 'e')`;

const ENUMS = `
  SELECT quote_ident(t.typname) AS name, string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) AS labels
  FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
  WHERE t.typnamespace = $1 AND ${NOT_FROM_EXTENSION('pg_type', 't.oid')}
  GROUP BY t.typname ORDER BY t.typname COLLATE "C"`;

const DOMAINS = `
  SELECT quote_ident(t.typname) AS name, format_type(t.typbasetype, t.typtypmod) AS type, t.typnotnull AS required,
    t.typdefault AS default,
    array(SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c
          WHERE c.contypid = t.oid AND c.contype = 'c' ORDER BY c.conname COLLATE "C") AS checks
  FROM pg_type t
  WHERE t.typnamespace = $1 AND t.typtype = 'd' AND ${NOT_FROM_EXTENSION('pg_type', 't.oid')}
  ORDER BY t.typname COLLATE "C"`;

/** Tables, partitioned tables, composite types and views, each with the details of its kind. */
const RELATIONS = `
  SELECT c.oid, quote_ident(c.relname) AS name, c.relkind AS kind, c.relpersistence AS persistence,
    array(SELECT o FROM unnest(c.reloptions) o ORDER BY o COLLATE "C") AS options,
    array(SELECT 'toast.' || o FROM unnest(toast.reloptions) o ORDER BY o COLLATE "C") AS toast_options,
    CASE WHEN c.relkind = 'p' THEN pg_get_partkeydef(c.oid) END AS partition_key,
    pg_get_expr(c.relpartbound, c.oid) AS partition_bound,
    (SELECT i.inhparent::regclass::text FROM pg_inherits i WHERE i.inhrelid = c.oid) AS parent
  FROM pg_class c LEFT JOIN pg_class toast ON toast.oid = c.reltoastrelid
  WHERE c.relnamespace = $1 AND c.relkind IN ('r', 'p', 'c', 'v', 'm') AND ${NOT_FROM_EXTENSION('pg_class', 'c.oid')}
  ORDER BY c.relname COLLATE "C"`;

const COLUMNS = `
  SELECT a.attrelid AS oid, quote_ident(a.attname) AS name, format_type(a.atttypid, a.atttypmod) AS type,
    a.attnotnull AS required, a.attidentity AS identity, a.attgenerated AS generated,
    pg_get_expr(d.adbin, d.adrelid) AS default,
    CASE WHEN a.attcollation <> t.typcollation THEN co.collname END AS collation,
    CASE WHEN a.attstorage <> t.typstorage THEN a.attstorage END AS storage,
    nullif(a.attcompression, '') AS compression,
    nullif(coalesce(a.attstattarget, -1), -1) AS statistics
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_collation co ON co.oid = a.attcollation
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE c.relnamespace = $1 AND c.relkind IN ('r', 'p', 'c', 'v', 'm') AND a.attnum > 0 AND NOT a.attisdropped
  ORDER BY a.attrelid, a.attnum`;

const CONSTRAINTS = `
  SELECT c.conrelid AS oid, quote_ident(c.conname) AS name, pg_get_constraintdef(c.oid) AS definition
  FROM pg_constraint c
  WHERE c.connamespace = $1 AND c.conrelid <> 0 AND c.contype IN ('c', 'f', 'p', 'u', 'x')
  ORDER BY c.conrelid, c.contype = 'p' DESC, c.conname COLLATE "C"`;

/** An index that backs a constraint is already described by the constraint, except for its storage options. */
const INDEXES = `
  SELECT i.indrelid AS oid, pg_get_indexdef(i.indexrelid) AS definition, i.indisvalid AS valid
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  WHERE c.relnamespace = $1
    AND (c.reloptions IS NOT NULL OR NOT EXISTS (SELECT FROM pg_constraint k
         WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')))
  ORDER BY i.indrelid, c.relname COLLATE "C"`;

const TRIGGERS = `
  SELECT t.tgrelid AS oid, pg_get_triggerdef(t.oid) AS definition, t.tgenabled AS enabled
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
  WHERE c.relnamespace = $1 AND NOT t.tgisinternal
  ORDER BY t.tgrelid, t.tgname COLLATE "C"`;

/** A sequence behind an identity column is already described by the column. */
const SEQUENCES = `
  SELECT quote_ident(c.relname) AS name, format_type(s.seqtypid, NULL) AS type, s.seqstart AS start, s.seqincrement AS increment,
    s.seqmin AS min, s.seqmax AS max, s.seqcache AS cache, s.seqcycle AS cycle
  FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
  WHERE c.relnamespace = $1
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i')
  ORDER BY c.relname COLLATE "C"`;

const FUNCTIONS = `
  SELECT quote_ident(p.proname) AS name, p.prokind AS kind, pg_get_function_arguments(p.oid) AS arguments,
    CASE WHEN p.prokind = 'p' THEN NULL ELSE pg_get_function_result(p.oid) END AS result,
    l.lanname AS language, p.provolatile AS volatility, p.proparallel AS parallel, p.proisstrict AS strict,
    p.prosecdef AS definer, p.proleakproof AS leakproof, p.procost AS cost, p.prorows AS rows,
    array(SELECT o FROM unnest(p.proconfig) o ORDER BY o COLLATE "C") AS settings,
    CASE WHEN p.prosqlbody IS NULL THEN p.prosrc ELSE pg_get_function_sqlbody(p.oid) END AS body
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
  WHERE p.pronamespace = $1 AND ${NOT_FROM_EXTENSION('pg_proc', 'p.oid')}
  ORDER BY p.proname COLLATE "C", pg_get_function_identity_arguments(p.oid) COLLATE "C"`;

const COMMENTS = `
  SELECT quote_ident(c.relname) AS relation, quote_ident(a.attname) AS column, d.description
  FROM pg_description d
  JOIN pg_class c ON d.classoid = 'pg_class'::regclass AND c.oid = d.objoid
  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND d.objsubid > 0
  WHERE c.relnamespace = $1
  ORDER BY c.relname COLLATE "C", d.objsubid`;

const QUERIES = {
  enums: ENUMS,
  domains: DOMAINS,
  sequences: SEQUENCES,
  relations: RELATIONS,
  columns: COLUMNS,
  constraints: CONSTRAINTS,
  indexes: INDEXES,
  triggers: TRIGGERS,
  functions: FUNCTIONS,
  comments: COMMENTS,
};

/**
 * The catalog rows of one schema, by kind. The client must be one connection outside a transaction; it is left as it
 * was found.
 *
 * @param {import('./schema-dump.mjs').Queryable} client
 * @param {string} schemaName
 * @returns {Promise<Record<keyof typeof QUERIES, any[]>>}
 */
export async function readCatalog(client, schemaName) {
  await client.query('BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY');
  try {
    // With our schema alone on the search path, Postgres prints our own names unqualified.
    await client.query(`SELECT set_config('search_path', quote_ident($1), true)`, [schemaName]);
    const { rows } = await client.query('SELECT oid FROM pg_namespace WHERE nspname = $1', [schemaName]);
    if (rows.length === 0) throw new Error(`There is no schema named ${schemaName}.`);
    const catalog = /** @type {any} */ ({});
    for (const [kind, query] of Object.entries(QUERIES)) {
      catalog[kind] = (await client.query(query, [rows[0].oid])).rows;
    }
    return catalog;
  } finally {
    await client.query('ROLLBACK');
  }
}
