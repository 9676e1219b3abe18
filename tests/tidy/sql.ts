/**
 * Where SQL may be written, and the two statements that only the transition functions may contain. Whether the SQL is
 * correct is for the tests that run it.
 */
import { findPattern, isCode, isSql, isUnder, lexed, shown, type Check } from './tree.ts';

const SQL_FOLDERS = ['src/engine/database', 'src/adapters', 'src/testing', 'src/embedded'];
/** The statements of a capability, beside its operations. */
const SQL_FILE = /^src\/engine\/.+\.sql\.ts$/;

/** A literal that starts a statement in capitals; the bare word alone may be an ordinary value. */
const STATEMENT =
  /^(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|LISTEN|UNLISTEN|NOTIFY|SET|TRUNCATE|MERGE|LOCK)\s+\S|^(?:BEGIN|COMMIT|ROLLBACK)\b/;
/** Lower case also starts sentences, so only unmistakable forms count. */
const LOWER_CASE_STATEMENT =
  /^(?:select\s[\s\S]*\sfrom\s|select\s+[\w.]+\(|insert\s+into\s+\S+\s*(?:\(|values|select)|update\s+\S+\s+set\s|delete\s+from\s+\S)/;
const LEADING_SQL_COMMENT = /^(?:\s+|--[^\n]*\n|\/\*[\s\S]*?\*\/)+/;

export const sqlInStore: Check = {
  name: 'no SQL statement is written outside sql, *.sql.ts, src/engine/database, src/adapters, src/testing and src/embedded',
  find: (files) =>
    files
      .filter(
        (file) =>
          isCode(file) && isUnder(file, 'src') && !isUnder(file, ...SQL_FOLDERS) && !SQL_FILE.test(file.path),
      )
      .flatMap((file) =>
        lexed(file)
          .literals.map(({ text, line }) => ({ statement: text.replace(LEADING_SQL_COMMENT, ''), line }))
          .filter(({ statement }) => STATEMENT.test(statement) || LOWER_CASE_STATEMENT.test(statement))
          .map(({ statement, line }) => ({ path: file.path, line, message: `SQL: ${shown(statement)}` })),
      ),
};

const QUALIFIER = String.raw`(?:"?[\w$]+"?\s*\.\s*|\$\{[^}]*\}\s*\.?\s*)*"?`;
const STATE_WRITE = new RegExp(
  String.raw`\bupdate\s+(?:only\s+)?${QUALIFIER}ff_execution\b|\binsert\s+into\s+${QUALIFIER}ff_event(?:_pack)?\b`,
  'gi',
);

/** Races set their scenes up and plant naive functions: an assertion trigger watches the state there. */
const WRITERS = ['sql/functions', 'sql/testing', 'tests/races'];

export const oneWriterOfState: Check = {
  name: 'only the functions in sql/functions and sql/testing write execution state or events',
  find: (files) =>
    files
      .filter((file) => (isCode(file) || isSql(file)) && !isUnder(file, ...WRITERS))
      .flatMap((file) => findPattern(file, lexed(file).uncommented, STATE_WRITE, 'writes state')),
};
