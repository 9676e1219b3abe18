/**
 * Every limit of the engine, by name. Over a limit is refused before anything is written.
 */
import { DEFINITION_LIMITS } from './definition-limits.ts';

/** Every limit, by name. Over a limit is refused before anything is written. */
export const LIMITS = {
  ...DEFINITION_LIMITS,
  /** Bytes of one payload or result as JSON text. */
  payloadBytes: 1_048_576,
  /** Executions in one submit call, and the bytes of their payloads together. */
  submitBatch: 10_000,
  submitBytes: 67_108_864,
  /** Executions named in one cancel call, leases in one renew call. */
  idBatch: 10_000,
  laneBytes: 64,
  namespaceBytes: 128,
  workerNameBytes: 256,
  tags: 64,
  tagKeyBytes: 128,
  tagValueBytes: 1_024,
  priority: 9_000,
  leaseMsMin: 50,
  leaseMsMax: 86_400_000,
  claimBatch: 1_000,
  /** Before work that somebody held is looked at again. Doubles while it is held: for a worker up to its poll, for a pass of a reconciler so many times. */
  lookAgainMs: 20,
  passLooks: 4,
  /** Longest between two hints that hand work on which stays held; the first ones come after `lookAgainMs`, and twice that. */
  handOnMs: 5_000,
  maxReclaims: 1_000_000,
  multiplier: 1_000,
  retryableCategories: 64,
  categoryBytes: 128,
  /** Longer failure messages are cut, not refused: a failure report must not fail. */
  failureMessageBytes: 8_192,
  reasonBytes: 1_024,
  idempotencyKeyBytes: 256,
  maxReplays: 1_000,
  /** Executions in one page of a list, and rows looked at for it. */
  listPage: 1_000,
  listExamined: 20_000,
  /** States and tags named by one filter. */
  filterTerms: 16,
  /** Combinations of lane, kind and capabilities that are in use: each is a queue of its own. Those out of use are forgotten. */
  routes: 10_000,
  /**
   * How long a submit waits for a transaction that has used its idempotency key or id first and is still open. The SQL functions that
   * wait for what others hold say the same as their lock_timeout.
   */
  heldWaitMs: 2_000,
  /** How long one inside a transaction waits for a connection of the application's own pool, to make a new combination known. */
  poolWaitMs: 2_000,
  /** A lane nobody has used can be paused while there are fewer than this. */
  lanes: 10_000,
  /** Waiting executions counted for one lane. */
  laneDepth: 10_000,
  /** Executions looked at for the rates of lanes, and the time they may span. */
  rateSample: 5_000,
  rateSpanMs: 60_000,
  /** Executions acted on in one chunk of a bulk verb. */
  bulkChunk: 1_000,
  /** Steps of one execution. */
  steps: 10_000,
  stepNameBytes: 128,
  stepKeyBytes: 256,
  /** Ends one run of a handler is handed: of steps, sleeps, waits and children. */
  handedEnds: 40_000,
  /** Children one pause waits for. */
  awaitedChildren: 10_000,
  progressBytes: 1_024,
  /** Waits of one suspension. */
  waits: 16,
  /** Of one condition: how deep, how many members of each, how many leaves in all, how many waitpoints of each, bytes as JSON. */
  conditionDepth: 4,
  conditionMembers: 64,
  conditionLeaves: 64,
  conditionWaitpoints: 64,
  conditionBytes: 65_536,
  /** What one leaf may count up to. */
  conditionCount: 5_000,
  /** Waitpoints of one execution. */
  waitpoints: 1_000,
  waitpointNameBytes: 400,
  /** Signals of one execution, and the bytes of their payloads together; half as much at one waitpoint. */
  signals: 10_000,
  signalsBytes: 16_777_216,
  /** So many more, and so much, for operators. */
  operatorSignals: 1_000,
  operatorSignalsBytes: 1_048_576,
  /** Bytes of one signal's payload as JSON text. */
  signalBytes: 65_536,
  signalNameBytes: 128,
  sourceBytes: 256,
  /** Bytes of a JSON Schema of a waitpoint. */
  schemaBytes: 65_536,
  /** How long one payload may be checked by it: a `pattern` can take for ever. */
  schemaCheckMs: 250,
  /** How long a token may be good, and is unless somebody says otherwise. */
  tokenMs: 31_536_000_000,
  tokenDefaultMs: 604_800_000,
  /** Bytes of what a token is bound to: its source and its signal. */
  tokenBoundBytes: 1_024,
  /** Of the address a link leads to. */
  linkBytes: 2_048,
  /** Bytes of one frame of a stream; frames and bytes of one append. */
  frameBytes: 65_536,
  appendFrames: 1_000,
  /** Patches among them: each is folded while others wait. */
  appendPatches: 50,
  appendBytes: 4_194_304,
  correlationBytes: 256,
  /** Bytes of the document patches make. */
  documentBytes: 1_048_576,
  /** Frames in one read of a stream, and how long one call waits for more. */
  streamRead: 10_000,
  /** Bytes of one page of frames; one frame at least. */
  streamPageBytes: 4_194_304,
  tailBlockMs: 30_000,
  /** Tails of one engine. */
  tails: 50_000,
  /** Appends of one stream that wait for the one under way. */
  waitingAppends: 10_000,
  /** Frames that best-effort streams may be configured to keep. */
  bestEffortFrames: 1_000_000,
  /** Members of one flow in one call, and edges into one member or in one call. */
  flowMembers: 10_000,
  flowEdges: 10_000,
  /** Edges of one flow in one call. */
  flowCallEdges: 100_000,
  /** Flows looked at for one page of a list. */
  flowsExamined: 10_000,
  memberNameBytes: 128,
  inputNameBytes: 128,
  /** Secrets a process may be configured with: the one that signs from the next rotation on, and older ones. */
  signingSecrets: 4,
  signingSecretBytesMin: 32,
  /** Events in one page of a subscription, which holds two at most: the one that is handed over and the next. */
  eventPage: 256,
  /** Events looked at in one statement for those a filter asks for. */
  eventsExamined: 5_000,
  /** Subscriptions of one engine. */
  subscriptions: 10_000,
  /** Consumers of the event feed, and events handed to one at once. */
  consumers: 1_000,
  consumerNameBytes: 128,
  consumerBatch: 1_024,
  /** Longer than events are kept anyway, they are kept for a consumer that has not passed them. */
  consumerGraceMs: 604_800_000,
  /**
   * Transactions of user code at once, of one engine: so many of `ctx.tx`, and so many handlers of consumers; of each at most as many as
   * there are connections for statements.
   */
  transactions: 4,
  /** How often the function of one `ctx.tx` is called because its connection was lost, before that fails the attempt. */
  transactionTries: 5,
  /** One that waits for a connection is reported after this long, and refused after that long. */
  connectionReportMs: 5_000,
  connectionWaitMs: 30_000,
} as const;
