/**
 * Files that break the import and purity rules, and files that nearly do. A plant lists exactly the places the rule
 * must report; everything else in it must pass.
 */
import { databaseClock, importDirection, plainStatements, pureImports, pureModel } from './imports.ts';
import { plant, type Plant } from './plant.ts';

export const planted: readonly Plant[] = [
  plant(
    importDirection,
    {
      'src/worker/run/claim.ts':
        "import type { WorkerPort } from '../../contract/protocol.ts';\nimport { pool } from '../../engine/database/pool.ts';",
      'src/contract/ids.ts': "export { state } from '../model/states.ts';",
      'src/model/gates/states.ts':
        "import { id } from '../../contract/ids.ts';\nimport { x } from '../other.ts';",
      'src/model/states.test.ts': "const load = () => import('../engine/open.ts');",
      'src/engine/database/pool.ts': "import '../../setup/global.ts';",
      'src/engine/flows/multi.ts': "import {\n  a,\n  b,\n} from '../streams/append.ts';",
      'src/engine/flows/fine.ts': "import { submit } from '../executions/submit.ts';",
      'src/engine/kit/context.ts':
        "import type { Hub } from '../streams/hub.ts';\nimport { type Signing } from '../signals/signing.ts';",
      'src/http/server.ts': "import { id } from '../contract/ids.ts';",
      'src/cli/commands/main.ts':
        "import { migrate } from '../../engine/database/migrate.ts';\nimport { due } from '../../engine/feed/events.ts';",
      'src/engine/root.ts': "import { all } from '../index.ts';",
      'src/index.ts': "export { pool } from './engine/database/pool.ts';",
      'src/testing/index.ts': "import { pool } from '../engine/database/pool.ts';",
      'src/connect/quoted.ts': "// from '../store/pool.ts'\nconst text = \"from '../store/pool.ts'\";",
    },
    [
      'src/worker/run/claim.ts:2',
      'src/contract/ids.ts:1',
      'src/model/states.test.ts:1',
      'src/engine/database/pool.ts:1',
      'src/engine/flows/multi.ts:4',
      'src/engine/kit/context.ts:2',
      'src/http/server.ts:1',
      'src/cli/commands/main.ts:2',
      'src/engine/root.ts:1',
    ],
  ),
  plant(
    plainStatements,
    {
      'src/engine/flows/flows.sql.ts': [
        "import { randomUUID } from 'node:crypto';",
        "import { LIMITS } from '../../contract/limits.ts';",
        "import { run } from '../database/database.ts';",
        "import { leaseArrays } from '../executions/executions.sql.ts';",
        "import type { Joined } from '../../model/joins.ts';",
        "import { ready, type Graph } from '../../model/graph.ts';",
        "import { checkText } from '../kit/checks.ts';",
        "import type { Claims } from './tokens.ts';",
        "const text = 'throw';",
        "if (text === '') throw new Error('decided');",
      ].join('\n'),
      'src/engine/flows/flows.ts': "import { randomUUID } from 'node:crypto';\nthrow new Error('fine here');",
    },
    [
      'src/engine/flows/flows.sql.ts:1',
      'src/engine/flows/flows.sql.ts:6',
      'src/engine/flows/flows.sql.ts:7',
      'src/engine/flows/flows.sql.ts:10',
    ],
  ),
  plant(
    pureImports,
    {
      'src/contract/a.ts': "import { z } from 'zod';\nimport { b } from './b.ts';",
      'src/contract/b.ts': "import type { Socket } from 'net';",
      'src/define/d.ts': "import { inspect } from 'node:util';",
      'src/model/c.ts': "import { randomUUID } from 'node:crypto';",
      'src/model/c.test.ts':
        "import { it } from 'vitest';\nimport fc from 'fast-check';\nimport { readFileSync } from 'node:fs';",
      'src/engine/database/pool.ts': "import pg from 'pg';",
    },
    [
      'src/contract/a.ts:1',
      'src/contract/b.ts:1',
      'src/define/d.ts:1',
      'src/model/c.ts:1',
      'src/model/c.test.ts:3',
    ],
  ),
  plant(
    pureModel,
    {
      'src/model/a.ts': [
        'const a = Date.now();',
        'const b = new Date(0);',
        'const c = Math.random();',
        'const d = performance.now();',
        'setTimeout(() => {}, 1);',
        "const text = 'Date.now()'; // Date.now() is refused",
      ].join('\n'),
      'src/worker/b.ts': 'const a = Date.now();',
    },
    ['src/model/a.ts:1', 'src/model/a.ts:2', 'src/model/a.ts:3', 'src/model/a.ts:4', 'src/model/a.ts:5'],
  ),
  plant(
    databaseClock,
    {
      'src/engine/database/a.ts': 'const a = Date.now();',
      'src/engine/b.ts': 'const ok = new Date(row.at);\nconst b = new Date();',
      'src/engine/upkeep/c.ts': 'const c = new Date;',
      'src/engine/feed/d.ts': 'const d = [1].map(Date.now);',
      'src/cli/e.ts': 'const e = new Date();',
    },
    ['src/engine/database/a.ts:1', 'src/engine/b.ts:2', 'src/engine/upkeep/c.ts:1', 'src/engine/feed/d.ts:1'],
  ),
];
