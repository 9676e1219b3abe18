/**
 * Waiting to be told: waits and the waitpoints where signals arrive, the conditions signals must meet, and the tokens by which
 * strangers may send them.
 */
import type { Json } from './json.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { PauseRequest, StepKey } from './steps.ts';
import type { ExecutionId } from './ids.ts';

/** Who says it. A person counts once: by `type` and `identity` together. */
export interface SignalSource {
  /** For example `user` or `service`, without a colon; `operator`, `token` and `engine` are kept. Default `user`. */
  type?: string;
  identity: string;
}

/** What is counted: signals, waitpoints that got one, or sources that sent one. */
export type CountedBy = 'signals' | 'waitpoints' | 'sources';

/** At least `n`, at any of the waitpoints. `match` takes only signals of that name. */
export interface CountCondition {
  readonly kind: 'count';
  readonly n: number;
  readonly by: CountedBy;
  readonly waitpoints: readonly string[];
  readonly match?: string;
}

/** Which signals end a wait. Nested at most 4 deep. */
export type SignalCondition =
  CountCondition | { readonly kind: 'all' | 'any'; readonly of: readonly SignalCondition[] };

/** A signal as a wait answers it. */
export interface Signal<Payload = Json> {
  signalId: string;
  waitpoint: string;
  name: string;
  payload: Payload;
  source: Required<SignalSource>;
  acceptedAtMs: number;
}

/** How a wait ended, with the signals that fit it, in the order they were accepted. */
export interface WaitEnd {
  outcome: 'satisfied' | 'timed_out';
  endedAtMs: number;
  signals: Signal[];
}

/** What is waited for, in words people filter by. */
export const WAIT_REASONS = ['signal', 'approval', 'callback', 'tool_result', 'review'] as const;
/** What a wait is for. */
export type WaitReason = (typeof WAIT_REASONS)[number];

/**
 * When nobody said it in time: end as `failed`, `cancelled` or `expired`; go on without (`resume`); or wait on, for an operator
 * (`escalate`).
 */
export const TIMEOUT_BEHAVIOURS = ['fail', 'cancel', 'expire', 'resume', 'escalate'] as const;
/** What happens when the time of a wait is over. */
export type TimeoutBehaviour = (typeof TIMEOUT_BEHAVIOURS)[number];

/** One wait: the step it is, and what ends it. */
export interface WaitRequest extends StepKey {
  condition: SignalCondition;
  /** From the moment the wait begins, however often the execution is resumed for something else. Default: no end. */
  timeoutMs?: number;
  /** Default `fail`. */
  onTimeout?: TimeoutBehaviour;
  /** How long the execution rests after the wait has ended, before it is claimable. Default 0. */
  resumeDelayMs?: number;
  /** What is waited for. The execution shows the first wait's. Default `signal`. */
  reason?: WaitReason;
}

/** A waitpoint to open. */
export interface WaitpointRequest {
  name: string;
  /** Default 7 days. Once a wait suspends on it, it lives as long as the wait may last. */
  expiresInMs?: number;
  /** A JSON Schema that payloads must fit. */
  schema?: Json;
}

/** Until one of the waits ends; or, as with a pause, until a time or children, whichever comes first. */
export interface SuspendRequest extends PauseRequest {
  waits: readonly WaitRequest[];
  /** Waitpoints with more than a name. Those that the conditions name and nobody has opened are opened. */
  waitpoints?: readonly Omit<WaitpointRequest, 'expiresInMs'>[];
  /**
   * `look`: begin the waits and take signals, but keep the lease; answers `open` while none has ended. A wait whose time is over
   * ends as it wished, if need be by suspending. Default `suspend`.
   */
  mode?: 'suspend' | 'look';
}

/** What became of giving the worker up for a wait. */
export type SuspendOutcome =
  | { outcome: 'suspended'; repeated: boolean }
  /** Enough was said before: the lease is kept. */
  | { outcome: 'already_satisfied'; ended: { name: string; key: string; end: WaitEnd }[] }
  /** What was to be waited for beside the waits has happened: the lease is kept. */
  | { outcome: 'due' }
  | { outcome: 'open' }
  | LeaseRefusal;

/** A waitpoint that its execution has opened before it waits. */
export interface Waitpoint {
  waitpointId: string;
  executionId: ExecutionId;
  name: string;
  createdAtMs: number;
  /** For whoever is to send the signal. It is stored nowhere. */
  token: string;
  tokenExpiresAtMs: number;
}

/** The waitpoint with its token, or why the lease was refused. */
export type CreateWaitpointOutcome = { outcome: 'created'; waitpoint: Waitpoint } | LeaseRefusal;

/** What a token allows, and for how long. */
export interface TokenRequest {
  /** How long it is good; never longer than its waitpoint. Default 7 days. */
  expiresInMs?: number;
  /** Who it is for: its signals are from this source, whatever is said with them. */
  source?: SignalSource;
  /** What it says: nothing else can be said with it. For links people click on. */
  signal?: { name: string; payload?: unknown };
  /** `once`: the second signal sent with it is answered as the first one's duplicate. Default `many`. */
  use?: 'once' | 'many';
  /** Makes a link of it: this address with the token as the query parameter `ff_token`. */
  linkTo?: string;
}

/** A token; it is stored nowhere. */
export interface IssuedToken {
  token: string;
  expiresAtMs: number;
  /** Names the token in lists and as a source, without being one. */
  fingerprint: string;
  /** With `linkTo`. */
  link: string | null;
}

/** A signal, sent by a token. */
export interface SignalRequest {
  /** A token, or a link that carries one. */
  token: string;
  /** What is said. Default `signal`, or what the token says. */
  name?: string;
  /** At most 64 KB as JSON; checked against the waitpoint's schema. */
  payload?: unknown;
  /** Who says it; the caller vouches for that. Default: who the token is for; of one for nobody, always the same one. */
  source?: SignalSource;
  /** The same key of the same source at the same waitpoint is the same signal. */
  idempotencyKey?: string;
}

/** A signal, sent by an operator without a token. */
export interface ApproveRequest {
  /** Who approves; counts as the source `operator` of this name. */
  by: string;
  /** Default `approved`. */
  name?: string;
  payload?: unknown;
  idempotencyKey?: string;
}

/** What a signal did. */
export const SIGNAL_EFFECTS = ['buffered', 'not_matching', 'not_counted', 'counted', 'resumed'] as const;
/**
 * `buffered`: the execution does not wait here yet, it is kept for then. `not_matching`: not a name that is waited for.
 * `not_counted`: it adds nothing, such as the same source again. `counted`: more are needed. `resumed`: it was the last.
 */
export type SignalEffect = (typeof SIGNAL_EFFECTS)[number];

/** What became of a signal. */
export type DeliverOutcome =
  | { outcome: 'accepted'; signalId: string; effect: SignalEffect }
  /** It was delivered before; what it did then. */
  | { outcome: 'duplicate'; signalId: string; effect: SignalEffect }
  /** Nobody waits for it any more. */
  | { outcome: 'closed' }
  /** The token's time is over, or the waitpoint's. */
  | { outcome: 'expired' }
  /** The execution has taken as many signals as it may. */
  | { outcome: 'too_many' };

/** An open waitpoint and the wait it belongs to. */
export interface PendingWaitpoint {
  executionId: ExecutionId;
  kind: string;
  lane: string;
  namespace: string;
  waitpointId: string;
  name: string;
  /** `pending`: opened, and not waited for yet. `waiting`: the execution is suspended on it. */
  state: 'pending' | 'waiting';
  /** The wait it belongs to. */
  wait: { name: string; key: string } | null;
  reason: WaitReason | null;
  createdAtMs: number;
  waitingSinceMs: number | null;
  timeoutAtMs: number | null;
  expiresAtMs: number | null;
  /** Signal names that are taken; empty for any. */
  matches: string[];
  signalCount: number;
  /** Of the token made with it, if one was: the key's id and the token's fingerprint. Null where no secret is configured. */
  tokenKid: string | null;
  tokenFingerprint: string | null;
}

/** A page of waitpoints. */
export interface WaitpointPage {
  waitpoints: PendingWaitpoint[];
  cursor: string | null;
}

/** Which waitpoints, and how many of them at once. */
export interface WaitpointListRequest {
  /** All open waitpoints of this execution. Default: those that any execution is suspended on, the longest wait first. */
  executionId?: string;
  /** Waitpoints in a page, 1 to 1,000. Default 100. */
  limit?: number;
  cursor?: string;
}

/** A key that tokens are, or were, signed with. */
export interface SigningKey {
  kid: string;
  state: 'signing' | 'verifying' | 'expired' | 'revoked';
  /** `foreign`: it is made from a secret this process does not have. */
  secret: 'known' | 'foreign';
  createdAtMs: number;
  verifiesUntilMs: number | null;
  revokedAtMs: number | null;
}

/** How long the old key stays good. */
export interface RotateRequest {
  /** How long tokens of the old key stay good. Default: as long as any of them is. */
  graceMs?: number;
}

/** What became of revoking a key. */
export type RevokeKeyOutcome =
  | { outcome: 'revoked' | 'already_revoked' | 'not_found' }
  /** It signs: rotate with no grace instead. */
  | { outcome: 'is_current' };
