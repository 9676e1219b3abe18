/**
 * The engine's parts, passed to every operation: the database, the doorbell and what this process remembers.
 * Operations are functions of these; they have no state of their own.
 */
import type { Database } from '../database/database.ts';
import type { Transactions } from '../database/transactions.ts';
import type { DemandMemory } from '../executions/claiming/seek-positions.ts';
import type { DoubtfulClaim } from '../executions/claiming/doubtful-claims.ts';
import type { CompleteOutcome } from '../../contract/protocol.ts';
import type { CompleteRow } from '../executions/executions.sql.ts';
import type { Batch } from './batch.ts';
import type { Doorbell } from './doorbell.ts';
import type { EndWatch } from '../executions/waiting.ts';
import type { FamilyWork } from '../families/families.ts';
import type { FlowWork } from '../flows/work.ts';
import type { DatabaseFeed } from '../feed/database-feed.ts';
import type { ReplyWatch } from '../messages/replies.ts';
import type { StreamHub } from '../streams/hub.ts';
import type { RouteCache } from '../executions/claiming/route-cache.ts';
import type { Signing } from '../signals/signing.ts';

export interface EngineContext {
  database: Database;
  doorbell: Doorbell;
  /** Where transactions of user code run; those of consumers are separate, because their handlers may take long. */
  transactions: Transactions;
  handlings: Transactions;
  ends: EndWatch;
  replies: ReplyWatch;
  /** The event log, for subscribers. */
  feed: DatabaseFeed;
  /** The output of attempts, for those who tail it. */
  streams: StreamHub;
  /** Work for flows that finished members have left behind. */
  flowWork: FlowWork;
  /** Children that end with their parents, or begin again with them. */
  families: FamilyWork;
  /** The same for what was published and not told yet. */
  topicWork: FlowWork;
  routes: RouteCache;
  /** The secrets tokens are signed with. */
  signing: Signing;
  /** By the demand of a worker: its kinds, lanes and capabilities. */
  demands: Map<string, DemandMemory>;
  /** Claim calls whose answer was lost: they may have been granted leases this process does not know of. */
  doubtful: DoubtfulClaim[];
  /** Completions about to be sent, which a claim may take along. */
  completions?: Pick<Batch<CompleteRow, CompleteOutcome>, 'lend'>;
  /** Queue rows this process has removed since the queue tables were last vacuumed. */
  counters: { dequeued: number };
  /** What runs beside the engine and stops with it: stopped first, and awaited while the database is still open. */
  companions: { stop(): void; close(): Promise<void> }[];
}
