/**
 * Waiting for the replies to requests.
 */
import { EngineError } from '../../contract/errors.ts';
import type { Json } from '../../contract/json.ts';
import type { Database } from '../database/database.ts';
import type { Doorbell } from '../kit/doorbell.ts';
import { Watch } from '../kit/watching.ts';
import { readReplies, type RequestKey, type StoredReply } from './messages.sql.ts';

export class ReplyWatch {
  readonly #watch: Watch<RequestKey, StoredReply, { reply: Json }>;

  constructor(database: Database, doorbell: Doorbell) {
    this.#watch = new Watch(doorbell, { read: (keys) => readReplies(database, keys), judge: replyOf });
  }

  async wait({ uuid, partition, messageId }: RequestKey, timeoutMs: number): Promise<Json> {
    const key = { uuid, partition, messageId };
    const given = new AbortController();
    const sentence = `No reply to message ${messageId} arrived within ${timeoutMs} ms; a request with the same id waits again.`;
    const timer = setTimeout(() => given.abort(new EngineError('no_reply', sentence)), timeoutMs);
    try {
      return (await this.#watch.wait(key, given.signal)).reply;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Rejects the remaining waiters. */
  close(): void {
    this.#watch.close();
  }
}

function replyOf(row: StoredReply | undefined, { messageId }: RequestKey): { reply: Json } | undefined {
  if (row === undefined) throw new EngineError('not_found', `Message ${messageId} is no longer kept.`);
  if (row.reply !== null) return { reply: row.reply[0] as Json };
  if (row.isReplied || row.isEnded)
    throw new EngineError(
      'execution_ended',
      `The execution ended before it replied to message ${messageId}.`,
    );
  return undefined;
}
