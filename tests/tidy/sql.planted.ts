/**
 * Files that contain SQL where it does not belong, and files that only look like it. Statements that a check searches
 * for in the whole tree are assembled from two halves, so that this file does not report itself.
 */
import { plant, type Plant } from './plant.ts';
import { oneWriterOfState, sqlInStore } from './sql.ts';

const UPDATE = ['UPD', 'ATE'].join('');
const INSERT = ['INS', 'ERT INTO'].join('');

export const planted: readonly Plant[] = [
  plant(
    sqlInStore,
    {
      'src/engine/a.ts': "await tx.query('SELECT 1');",
      'src/worker/b.ts': 'await query(`\n  -- why\n  WITH due AS (SELECT 1) ${rest}`);',
      'src/cli/c.ts': "query('BEGIN');\nquery('LISTEN ff');\nquery(\"DROP SCHEMA x\");",
      'src/client/d.ts': 'query(`select id from ${table} where id = $1`);\nquery("delete from x");',
      'src/engine/upkeep/e.ts': "query('select ff_claim($1)');",
      'src/engine/fine.ts': [
        '// SELECT 1',
        "const verb = 'SELECT';",
        "const help = 'select one of the lanes';",
        "const word = 'SETTINGS are stored';",
        "const begin = 'BEGINNING';",
      ].join('\n'),
      'src/engine/flows/f.sql.ts': "query('SELECT 1');",
      'src/engine/database/f.ts': "query('SELECT 1');",
      'src/testing/g.ts': "query('CREATE DATABASE x');",
      'src/embedded/h.ts': "query('ALTER ROLE x');",
      'tests/i.test.ts': "query('TRUNCATE x');",
    },
    [
      'src/engine/a.ts:1',
      'src/worker/b.ts:1',
      'src/cli/c.ts:1',
      'src/cli/c.ts:2',
      'src/cli/c.ts:3',
      'src/client/d.ts:1',
      'src/client/d.ts:2',
      'src/engine/upkeep/e.ts:1',
    ],
  ),
  plant(
    oneWriterOfState,
    {
      'src/engine/database/a.ts': `query(\`\${schema}\`);\nquery(\`${UPDATE} \${schema}.ff_execution SET state = 1\`);`,
      'sql/migrations/0002_x.sql': `-- ${UPDATE} ff_execution\n${INSERT} /* schema */ flowfabric.ff_event VALUES (1);`,
      'tests/b.test.ts': `query('${UPDATE.toLowerCase()} only "x".ff_execution set state = 1');`,
      'sql/functions/fine.sql': `${UPDATE} ff_execution SET state = 1;`,
      'sql/testing/fine.sql': `${INSERT} ff_event VALUES (1);`,
      'sql/migrations/0001_x.sql': [
        'SELECT 1 FROM ff_execution FOR UPDATE OF ff_execution;',
        'CREATE TRIGGER t AFTER UPDATE ON ff_execution FOR EACH ROW EXECUTE FUNCTION f();',
        `${INSERT} ff_event_cursor VALUES (1);`,
        `${UPDATE} ff_execution_body SET a = 1;`,
      ].join('\n'),
    },
    ['src/engine/database/a.ts:2', 'sql/migrations/0002_x.sql:2', 'tests/b.test.ts:1'],
  ),
];
