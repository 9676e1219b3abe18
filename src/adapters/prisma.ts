/**
 * For Prisma on Postgres: the client of an interactive transaction, or the root client to begin one on. Only the parts
 * in use are described here; the package is not imported.
 */
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Through } from './through.ts';

/** `Prisma.TransactionClient`. */
export interface PrismaTransaction {
  $queryRawUnsafe(text: string, ...params: (string | null)[]): PromiseLike<unknown>;
}

/** `PrismaClient`. */
export interface PrismaRoot<Tx extends PrismaTransaction> {
  $transaction<Value>(
    work: (tx: Tx) => Promise<Value>,
    options?: { maxWait?: number; timeout?: number; isolationLevel?: 'ReadCommitted' },
  ): Promise<Value>;
}

/** Prisma's own limits, in milliseconds: it rolls back what takes longer, by default after five seconds. */
export interface PrismaTransactorOptions {
  /** To get a connection from the pool. */
  maxWait?: number;
  /** For the whole transaction. */
  timeout?: number;
}

/** Submits inside a transaction of Prisma: give it as `executor`. */
export function prismaExecutor(tx: PrismaTransaction): SqlExecutor {
  return async (text, params) => {
    try {
      return { rows: (await tx.$queryRawUnsafe(text, ...params)) as unknown[] };
    } catch (error) {
      throw withSqlState(error);
    }
  };
}

/** Runs `ctx.tx`, or the handler of a consumer, in a transaction of Prisma. */
export function prismaTransactor<Tx extends PrismaTransaction>(
  prisma: PrismaRoot<Tx>,
  options: PrismaTransactorOptions = {},
): Through<Tx> {
  return (work) =>
    prisma.$transaction((tx) => work(tx, prismaExecutor(tx)), {
      ...options,
      isolationLevel: 'ReadCommitted',
    });
}

/** Where Prisma keeps the SQLSTATE: with a driver adapter, and with its own query engine. */
interface PrismaError {
  code?: unknown;
  meta?: { code?: unknown; driverAdapterError?: { cause?: { originalCode?: unknown } } };
}

const WRITE_CONFLICT = 'P2034';
const SERIALIZATION_FAILURE = '40001';

/** Prisma has its own codes; the engine reads the SQLSTATE from `code`, where all other libraries have it. */
function withSqlState(error: unknown): unknown {
  const { code, meta } = (error ?? {}) as PrismaError;
  const known = meta?.driverAdapterError?.cause?.originalCode ?? meta?.code;
  const sqlState = known ?? (code === WRITE_CONFLICT ? SERIALIZATION_FAILURE : undefined);
  if (typeof sqlState !== 'string') return error;
  return Object.assign(new Error('Prisma reports an error of the database.', { cause: error }), {
    code: sqlState,
  });
}
