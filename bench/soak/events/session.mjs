/**
 * A plain connection that comes back: its user gets the error of the running statement, and a new connection with the
 * next one. What a lost connection means is up to the user.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

export const SCHEMA = 'flowfabric';
const RECONNECT_MS = 25;
/** A server that crashed recovers within this. */
const RECONNECT_LIMIT_MS = 60_000;
/** Ended by an operator, crashed, starting, stopping; no connection left; the protocol broke off. */
const GONE_STATES = /^(?:57P0[1-5]|53300|08...)$/;
const GONE_CODES = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT'];
const GONE_TEXT = /connection terminated|not queryable|connection error|client was closed/i;

/** Whether the connection was lost, as opposed to a wrong statement. */
export function isGone(error) {
  const code = String(error?.code ?? '');
  return GONE_STATES.test(code) || GONE_CODES.includes(code) || GONE_TEXT.test(String(error?.message));
}

export class Session {
  #url;
  #name;
  #client;

  /** `name` is its application name on the server. */
  constructor(url, name) {
    this.#url = url;
    this.#name = name;
  }

  /** Runs one statement; opens the connection first when there is none. */
  async query(text, values) {
    const client = await this.#open();
    try {
      return await client.query(text, values);
    } catch (error) {
      if (isGone(error)) this.#drop(client);
      throw error;
    }
  }

  async rows(text, values) {
    return (await this.query(text, values)).rows;
  }

  /** Ends a transaction that may or may not be open, whatever state the connection is in. */
  async abandon() {
    if (this.#client === undefined) return;
    await this.query('ROLLBACK').catch(() => this.#drop(this.#client));
  }

  async close() {
    const client = this.#client;
    this.#client = undefined;
    await client?.end().catch(() => undefined);
  }

  async #open() {
    const deadline = Date.now() + RECONNECT_LIMIT_MS;
    while (this.#client === undefined) {
      const client = new pg.Client({
        connectionString: this.#url,
        application_name: this.#name,
        options: `-c search_path=${SCHEMA},public`,
      });
      client.on('error', () => this.#drop(client));
      try {
        await client.connect();
        this.#client = client;
      } catch (error) {
        if (!isGone(error) || Date.now() > deadline) throw error;
        await delay(RECONNECT_MS);
      }
    }
    return this.#client;
  }

  #drop(client) {
    if (this.#client === client) this.#client = undefined;
    client?.end().catch(() => undefined);
  }
}
