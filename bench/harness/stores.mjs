/**
 * Gives every sample its own store: a fresh database, or an emptied Redis. Also prepares a database between two
 * measurements, so that all contenders start from the same state.
 */
import { Redis } from 'ioredis';
import pg from 'pg';

const PREFIX = 'bench_';

/** Runs a function with a client that is closed afterwards. */
export async function withClient(url, run) {
  const client = new pg.Client({ connectionString: url });
  // The next statement reports a connection lost between two statements.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await run(client);
  } finally {
    await client.end();
  }
}

export class Stores {
  #serverUrl;
  #redisUrl;
  #made = new Set();
  #count = 0;

  constructor({ serverUrl, redisUrl }) {
    this.#serverUrl = serverUrl;
    this.#redisUrl = redisUrl;
  }

  get serverUrl() {
    return this.#serverUrl;
  }

  /** Creates a store for the contender, empty or a copy of another database. */
  async create(contender, template = 'template1') {
    if (contender.store === 'redis') return emptied(this.#redisUrl);
    this.#count += 1;
    const name = `${PREFIX}${contender.name.replaceAll('-', '_')}_${process.pid}_${this.#count}`;
    this.#made.add(name);
    await withClient(this.#serverUrl, (client) =>
      client.query(`CREATE DATABASE ${name} TEMPLATE ${template}`),
    );
    const url = new URL(this.#serverUrl);
    url.pathname = `/${name}`;
    return { url: url.href, name };
  }

  async drop(store) {
    if (store.name === null) return;
    await withClient(this.#serverUrl, (client) =>
      client.query(`DROP DATABASE IF EXISTS ${store.name} WITH (FORCE)`),
    );
    this.#made.delete(store.name);
  }

  async dropAll() {
    for (const name of this.#made) await this.drop({ name });
  }
}

async function emptied(url) {
  const redis = new Redis(url);
  try {
    await redis.flushall();
  } finally {
    redis.disconnect();
  }
  return { url, name: null };
}

/** Brings the statistics into the wanted state, then flushes, so that no checkpoint falls into the measurement. */
export async function settleStore(store, statistics) {
  if (store.name === null) return;
  await withClient(store.url, async (client) => {
    if (statistics === 'analysed') await client.query('VACUUM ANALYZE');
    await client.query('CHECKPOINT');
  });
}

/** Disables autovacuum for every table, so that nothing is analysed during the sample. */
export async function neverAnalyse(store) {
  if (store.name === null) return;
  await withClient(store.url, async (client) => {
    const { rows } = await client.query(
      `SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
       WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')`,
    );
    for (const { name } of rows) await client.query(`ALTER TABLE ${name} SET (autovacuum_enabled = off)`);
  });
}
