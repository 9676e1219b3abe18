/**
 * Adapters for the database libraries applications use: for each an executor, to submit inside your own transaction,
 * and a transactor, to pass to `ctx.tx` as `through`. They import no library; bring your own.
 */
export { drizzleExecutor, drizzleTransactor } from './drizzle.ts';
export type { DrizzleRoot, DrizzleStatement, DrizzleTransaction } from './drizzle.ts';
export { kyselyExecutor, kyselyTransactor } from './kysely.ts';
export type { KyselyRoot, KyselyStatement, KyselyTransaction } from './kysely.ts';
export { pgExecutor, pgTransactor } from './pg.ts';
export type { PgClient, PgPool, PgPoolClient } from './pg.ts';
export { postgresJsExecutor, postgresJsTransactor } from './postgres-js.ts';
export type { PostgresJsRoot, PostgresJsSql } from './postgres-js.ts';
export { prismaExecutor, prismaTransactor } from './prisma.ts';
export type { PrismaRoot, PrismaTransaction, PrismaTransactorOptions } from './prisma.ts';
export type { Through } from './through.ts';
