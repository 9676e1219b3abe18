/**
 * Every limit of the engine, by name. A request over a limit is refused before anything is written.
 */
import { DEFINITION_LIMITS } from './definition-limits.ts';

/** Every limit of the engine. A request over a limit is refused before anything is written. */
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
  /**
   * Delay before polling again for work locked by another transaction. Doubles each time: for a worker up to its poll
   * interval, for a reconciler's pass `passPolls` times.
   */
  heldPollMs: 20,
  passPolls: 4,
  /**
   * Longest interval between hints that pass on work which stays locked; the first ones follow after `heldPollMs` and
   * twice that.
   */
  handOnMs: 5_000,
  maxReclaims: 1_000_000,
  multiplier: 1_000,
  retryableCategories: 64,
  categoryBytes: 128,
  /** Longer failure messages are cut, not refused: a failure report must not fail. */
  failureMessageBytes: 8_192,
  /**
   * Of the detail of a failure: bytes of everything together, of a class name, of a cause's message, and how many causes.
   * What is longer is cut.
   */
  failureDetailBytes: 8_192,
  failureNameBytes: 256,
  failureCauseBytes: 512,
  failureCauses: 8,
  reasonBytes: 1_024,
  idempotencyKeyBytes: 256,
  /** Bytes of the key that names an execution. */
  keyBytes: 256,
  maxReplays: 1_000,
  /** Executions in one page of a list, and rows examined for it. */
  listPage: 1_000,
  listExamined: 20_000,
  /** Executions with one tag that `settled` looks at. */
  settledExamined: 200_000,
  /**
   * Of one `describe`: steps and the bytes of each value, children, waitpoints, attempts of the timeline and leases of each
   * entry in it, and attempts with the detail of their failure. The last ones are returned; of values, the beginning.
   */
  describedSteps: 500,
  describedValueBytes: 2_048,
  describedChildren: 200,
  describedWaits: 100,
  describedMessages: 100,
  describedAttempts: 200,
  describedLeases: 20,
  describedDetails: 20,
  /** Executions or flows returned for the beginning of an id. */
  idCandidates: 10,
  /** States and tags named by one filter. */
  filterTerms: 16,
  /** Combinations of lane, kind and capabilities in use: each is a queue of its own. Unused ones are forgotten. */
  routes: 10_000,
  /** Policies that executions share by number. Any others are stored with each execution. */
  policies: 1_000,
  /**
   * How long a submit waits for an open transaction that used its idempotency key or id first. The SQL functions that
   * wait for locks have the same lock_timeout.
   */
  heldWaitMs: 2_000,
  /**
   * How long a submit inside a transaction waits for a connection of the application's own pool, to intern a new route.
   */
  poolWaitMs: 2_000,
  /** Pausing a lane that was never used is refused when there are this many. */
  lanes: 10_000,
  /** Waiting executions counted for one lane. */
  laneDepth: 10_000,
  /** Executions examined for the rates of lanes, and the time they may span. */
  rateSample: 5_000,
  rateSpanMs: 60_000,
  /** Executions acted on in one chunk of a bulk verb. */
  bulkChunk: 1_000,
  /** Children that are ended or replayed with their parent in one transaction. */
  familyPart: 256,
  /** Items of one `ctx.map`, and how many of them may be in progress at once. */
  mapItems: 10_000,
  mapConcurrency: 1_000,
  /** Steps of one execution. */
  steps: 10_000,
  stepNameBytes: 128,
  stepKeyBytes: 256,
  /** Longest duration of a step that is stored. */
  stepDurationMs: 2_147_483_647,
  /** Outcomes of steps, sleeps, waits and children that one run of a handler may receive. */
  handedEnds: 40_000,
  /** Children one pause waits for. */
  awaitedChildren: 10_000,
  progressBytes: 1_024,
  /** Waits of one suspension. */
  waits: 16,
  /** Of one condition: nesting, parts of one `all` or `any`, leaves in total, waitpoints per leaf, bytes as JSON. */
  conditionDepth: 4,
  conditionParts: 64,
  conditionLeaves: 64,
  conditionWaitpoints: 64,
  conditionBytes: 65_536,
  /** Signals one leaf may ask for. */
  conditionCount: 5_000,
  /** Waitpoints of one execution. */
  waitpoints: 1_000,
  waitpointNameBytes: 400,
  /** Signals of one execution, and the bytes of their payloads together; half of both at one waitpoint. */
  signals: 10_000,
  signalsBytes: 16_777_216,
  /** Additional signals and bytes, for operators only. */
  operatorSignals: 1_000,
  operatorSignalsBytes: 1_048_576,
  /** Bytes of one signal's payload as JSON text. */
  signalBytes: 65_536,
  signalNameBytes: 128,
  sourceBytes: 256,
  /** Bytes of a JSON Schema of a waitpoint. */
  schemaBytes: 65_536,
  /** Longest time for checking one payload by it: a `pattern` can take forever. */
  schemaCheckMs: 250,
  /** Longest and default lifetime of a token. */
  tokenMs: 31_536_000_000,
  tokenDefaultMs: 604_800_000,
  /** Bytes of the source and the signal a token is bound to. */
  tokenBoundBytes: 1_024,
  /** Bytes of the address a link leads to. */
  linkBytes: 2_048,
  /** Messages handed over in one run; after that the handler must continue as a new run. */
  messagesPerRun: 1_000,
  /** Messages of one execution that were not handed over yet, and the bytes of their payloads together. */
  messages: 10_000,
  messagesBytes: 16_777_216,
  /** Bytes of one message's payload, or of a reply, as JSON text. */
  messageBytes: 65_536,
  /** Bytes of the name of a topic, which names the steps of its waits, and of what is published, as JSON text. */
  topicBytes: 120,
  publishedBytes: 65_536,
  /** Executions notified of a topic in one transaction. */
  topicTold: 256,
  /** Bytes of the name of a mailbox. */
  mailboxBytes: 128,
  messageIdBytes: 256,
  /** How long a request waits for its reply: by default, and at most. */
  requestMs: 30_000,
  requestLongestMs: 86_400_000,
  /** How long the id of a message that was handed over in an earlier run is remembered at least. */
  messageIdMs: 3_600_000,
  /** Runs whose summaries are kept. */
  runSummaries: 20,
  /** Rows of one kind that are deleted at once when a run ends. */
  runPart: 1_000,
  /** Bytes of one frame of a stream; frames and bytes of one append. */
  frameBytes: 65_536,
  appendFrames: 1_000,
  /** Patches among them: each is applied while other appends wait. */
  appendPatches: 50,
  appendBytes: 4_194_304,
  correlationBytes: 256,
  /** Bytes of a summary document. */
  documentBytes: 1_048_576,
  /**
   * Frames that a handler which runs again is compared with; what follows them is written again. And patches that are
   * put into the order of the handler when another attempt writes patches before steps that are finished; if there are
   * more, patches are folded in the order they come.
   */
  comparedFrames: 100_000,
  refoldedPatches: 20_000,
  /** Frames in one read of a stream, and how long one call waits for more. */
  streamRead: 10_000,
  /** Bytes of one page of frames; a page has at least one frame. */
  streamPageBytes: 4_194_304,
  tailBlockMs: 30_000,
  /** Tails of one engine. */
  tails: 50_000,
  /** Appends of one stream that wait for the current one. */
  waitingAppends: 10_000,
  /** Frames that best-effort streams may be configured to keep. */
  bestEffortFrames: 1_000_000,
  /** Members of one flow in one call, and edges into one member or in one call. */
  flowMembers: 10_000,
  flowEdges: 10_000,
  /** Edges of one flow in one call. */
  flowCallEdges: 100_000,
  /** Flows examined for one page of a list. */
  flowsExamined: 10_000,
  memberNameBytes: 128,
  inputNameBytes: 128,
  /** Secrets a process may be configured with: the one used from the next rotation on, and older ones. */
  signingSecrets: 4,
  signingSecretBytesMin: 32,
  /**
   * Events in one page of a subscription, which keeps at most two: the one being read and the next. It ends with a row of
   * the log, which holds up to 256, so there may be 255 more.
   */
  eventPage: 256,
  /** Bytes of a result, as JSON text, that a completion event carries where all events are asked for. */
  eventResultBytes: 8_192,
  /** Events examined in one statement for those that match a filter. */
  eventsExamined: 5_000,
  /** Subscriptions of one engine. */
  subscriptions: 10_000,
  /** Consumers of the event feed, and events passed to a handler in one call. */
  consumers: 1_000,
  consumerNameBytes: 128,
  consumerBatch: 1_024,
  /** How much longer than usual events are kept for a consumer that has not passed them. */
  consumerGraceMs: 604_800_000,
  /**
   * Concurrent transactions of user code in one engine: this many of `ctx.tx`, and this many consumer handlers; of each
   * at most as many as there are connections for statements.
   */
  transactions: 4,
  /** How often the function of one `ctx.tx` is called again after a lost connection before the attempt fails. */
  transactionTries: 5,
  /** How long a transaction waits for a connection before that is reported, and before it is refused. */
  connectionReportMs: 5_000,
  connectionWaitMs: 30_000,
} as const;
