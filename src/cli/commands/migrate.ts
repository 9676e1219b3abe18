/**
 * `flowfabric migrate`: brings a schema up to date, or says what that would take and changes nothing.
 */
import { migrate } from '../../engine/database/migrate.ts';
import { planMigration } from '../../engine/database/migration-plan.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import type { Line } from '../look.ts';
import type { Session } from '../session.ts';

export interface MigrateCommandOptions {
  grantTo?: string;
  dryRun?: true;
  showSql?: true;
}

export async function migrateCommand(options: MigrateCommandOptions, session: Session): Promise<number> {
  if (options.showSql && !options.dryRun) throw new UsageError('--show-sql needs --dry-run.');
  if (options.dryRun) return dryRun(options, session);
  const { printer, schema } = session;
  const { grantTo } = options;
  const databaseUrl = session.databaseUrl();
  const { applied } = await migrate({ databaseUrl, schema, ...(grantTo === undefined ? {} : { grantTo }) });
  printer.result({ schema, applied }, [
    ...applied.map((name): Line => [[`applied ${name}`]]),
    [[`Schema ${schema} is up to date.`]],
  ]);
  return EXIT.ok;
}

async function dryRun({ grantTo, showSql }: MigrateCommandOptions, session: Session): Promise<number> {
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
