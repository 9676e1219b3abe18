/**
 * The adapter for Prisma, on the real client with its driver adapter for `pg`. What `prisma generate` would write for a
 * schema without models is written out here, so that no generator has to run. Both packages are large and may be
 * missing from a checkout; then the suite is skipped and says so.
 */
import { createRequire } from 'node:module';
import { describe } from 'vitest';
import { prismaExecutor, prismaTransactor, type PrismaTransaction } from '../../src/adapters/index.ts';
import { describeLibrary, type Library } from './library.ts';
import { patiently } from '../setup/patience.ts';

interface Tx extends PrismaTransaction {
  $executeRaw(text: TemplateStringsArray, ...params: unknown[]): Promise<number>;
  $executeRawUnsafe(text: string): Promise<number>;
}

interface Client extends Tx {
  $transaction<Value>(
    work: (tx: Tx) => Promise<Value>,
    options?: { maxWait?: number; timeout?: number; isolationLevel?: string },
  ): Promise<Value>;
  $disconnect(): Promise<void>;
}

/** Missing from the types of Node 20. */
const { WebAssembly } = globalThis as unknown as {
  WebAssembly: { Module: new (bytes: Uint8Array) => unknown };
};

const require = createRequire(import.meta.url);
const RUNTIME = '@prisma/client/runtime';
const COMPILER = `${RUNTIME}/query_compiler_small_bg.postgresql`;
const ADAPTER = '@prisma/adapter-pg';

function isInstalled(): boolean {
  try {
    require.resolve(`${RUNTIME}/client`);
    require.resolve(ADAPTER);
    return true;
  } catch {
    return false;
  }
}

function openClient(url: string): Client {
  const { getPrismaClient } = require(`${RUNTIME}/client`);
  const { PrismaPg } = require(ADAPTER);
  const PrismaClient = getPrismaClient({
    previewFeatures: [],
    clientVersion: require('@prisma/client/package.json').version,
    engineVersion: 'none',
    activeProvider: 'postgresql',
    inlineSchema: 'datasource db {\n  provider = "postgresql"\n}\n',
    runtimeDataModel: { models: {}, enums: {}, types: {} },
    parameterizationSchema: { strings: [], graph: 'AAAA' },
    compilerWasm: {
      getRuntime: async () => require(`${COMPILER}.js`),
      getQueryCompilerWasmModule: async () =>
        new WebAssembly.Module(Buffer.from(require(`${COMPILER}.wasm-base64.js`).wasm, 'base64')),
      importName: './query_compiler_small_bg.js',
    },
  });
  return new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 2 }) });
}

describe.skipIf(!isInstalled())('with @prisma/client and @prisma/adapter-pg installed', () => {
  describeLibrary('Prisma', async (url): Promise<Library<Tx>> => {
    const prisma = openClient(url);
    return {
      transaction: (work) => prisma.$transaction(work, { timeout: patiently(15_000) }),
      executor: prismaExecutor,
      transactor: prismaTransactor(prisma, { timeout: patiently(15_000) }),
      write: (tx, id) => tx.$executeRaw`INSERT INTO public.booking VALUES (${id})`,
      send: (tx, statement) => tx.$executeRawUnsafe(statement),
      close: () => prisma.$disconnect(),
    };
  });
});
