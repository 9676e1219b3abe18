/**
 * `flowfabric migrate`: creates a schema or brings it up to date; with --dry-run it prints what would be applied and
 * changes nothing.
 */
import { migrate as migrateSchema } from '../../engine/database/migrations/migrate.ts';
import { planMigration } from '../../engine/database/migrations/migration-plan.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import type { Line } from '../style.ts';
import type { Session } from '../session.ts';

interface MigrateOptions {
  grantTo?: string;
  dryRun?: true;
  showSql?: true;
}

export const migrate: CommandSpec = {
  name: 'migrate',
  summary: 'create the schema, or bring it up to date',
  description:
    'Create the schema in a Postgres database, or bring it up to date. Safe to\n' +
    'repeat, and to run from many processes at once.',
  options: [
    ['--grant-to <role>', 'grant this role the rights to run the engine'],
    ['--dry-run', 'print what would be applied; change nothing'],
    ['--show-sql', 'with --dry-run: print the SQL as well'],
  ],
  examples: [
    'flowfabric migrate --url postgres://owner@localhost/app --grant-to app',
    'flowfabric migrate --dry-run --show-sql > next.sql',
  ],
  action: run,
};

async function run(session: Session, options: MigrateOptions): Promise<number> {
  if (options.showSql && !options.dryRun) throw new UsageError('--show-sql needs --dry-run.');
  if (options.dryRun) return dryRun(options, session);
  const { printer, schema } = session;
  const { grantTo } = options;
  const databaseUrl = session.databaseUrl();
  const { applied } = await migrateSchema({
    databaseUrl,
    schema,
    ...(grantTo === undefined ? {} : { grantTo }),
  });
  printer.result({ schema, applied }, [
    ...applied.map((name): Line => [[`applied ${name}`]]),
    [[`Schema ${schema} is up to date.`]],
  ]);
  return EXIT.ok;
}

async function dryRun({ grantTo, showSql }: MigrateOptions, session: Session): Promise<number> {
  const { printer, schema } = session;
  const { pending } = await planMigration({ databaseUrl: session.databaseUrl(), schema });
  const lines = pending.flatMap(({ name, sql }): Line[] => [
    [[showSql ? `-- would apply ${name}` : `would apply ${name}`]],
    ...(showSql ? [[[sql]] as const] : []),
  ]);
  const grants: Line[] =
    grantTo === undefined
      ? []
      : [[[`${showSql ? '-- ' : ''}would grant the use of schema ${schema} to ${grantTo}`]]];
  const nothing: Line[] = pending.length === 0 ? [[[`Schema ${schema} is up to date.`]]] : [];
  const shown = showSql ? pending : pending.map(({ name }) => ({ name }));
  printer.result({ schema, dryRun: true, pending: shown, grantTo: grantTo ?? null }, [
    ...lines,
    ...grants,
    ...nothing,
  ]);
  return EXIT.ok;
}
