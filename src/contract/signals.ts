/**
 * Signals: waits and the waitpoints where signals arrive, the conditions that signals satisfy, and the tokens that
 * allow outsiders to send them.
 */
import type { Json } from './json.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { PauseRequest, StepKey } from './steps.ts';
import type { Duration } from './shape/duration.ts';
import type { ExecutionId } from './ids.ts';
import type { ReceivedTopic, TopicCondition } from './topics.ts';

/** Who sends a signal. Sources are distinct by `type` and `identity` together. */
export interface SignalSource {
  /**
   * For example `user` or `service`, without a colon; `operator`, `token` and `engine` are reserved. Default `user`.
   */
  type?: string;
  identity: string;
}

/** What is counted: signals, waitpoints that received one, or sources that sent one. */
export type CountedBy = 'signals' | 'waitpoints' | 'sources';

/** At least `n`, at any of the waitpoints. With `match` only signals of that name count. */
export interface CountCondition {
  readonly kind: 'count';
  readonly n: number;
  readonly by: CountedBy;
  readonly waitpoints: readonly string[];
  readonly match?: string;
}

/** Which signals satisfy a wait. Nested at most 4 deep. */
export type SignalCondition =
  CountCondition | { readonly kind: 'all' | 'any'; readonly of: readonly SignalCondition[] };

/** The first message of a mailbox that was not handed over yet; the wait takes it. */
export interface MessageCondition {
  readonly kind: 'message';
  readonly mailbox: string;
}

/** What a wait waits for: signals, or something that it takes. */
export type WaitCondition = SignalCondition | MessageCondition | TopicCondition;

/** A message as its wait stores it. */
export interface HandedMessage {
  id: string;
  sentAtMs: number;
  /** Whether its sender waits for a reply. */
  wantsReply: boolean;
  payload: Json;
  /** The handler has replied. */
  isReplied?: true;
}

/** A signal as a wait returns it. */
export interface Signal<Payload = Json> {
  signalId: string;
  waitpoint: string;
  name: string;
  payload: Payload;
  source: Required<SignalSource>;
  acceptedAtMs: number;
}

/** How a wait finished, with its matching signals in the order they were accepted. */
export interface WaitEnd {
  outcome: 'satisfied' | 'timed_out';
  endedAtMs: number;
  signals: Signal[];
  /** What a wait for a message has taken. */
  message?: HandedMessage;
  /** What a wait for a topic has received. */
  topic?: ReceivedTopic;
}

/** What a wait is for, as shown in lists. */
export const WAIT_REASONS = ['signal', 'approval', 'callback', 'tool_result', 'review'] as const;
/** What a wait is for. */
export type WaitReason = (typeof WAIT_REASONS)[number];

/**
 * What happens when a wait times out: the execution finishes as failed, cancelled or expired; the handler continues
 * without a signal (`resume`); or the wait stays open for an operator (`escalate`).
 */
export const TIMEOUT_BEHAVIOURS = ['fail', 'cancel', 'expire', 'resume', 'escalate'] as const;
/** What happens when a wait times out. */
export type TimeoutBehaviour = (typeof TIMEOUT_BEHAVIOURS)[number];

/** One wait: the step that stores it, and its condition. */
export interface WaitRequest extends StepKey {
  condition: WaitCondition;
  /** From the start of the wait, however often the execution is resumed for something else. Default: no timeout. */
  timeoutMs?: number;
  /** Default `fail`. */
  onTimeout?: TimeoutBehaviour;
  /** Delay between the end of the wait and the execution being claimable. Default 0. */
  resumeDelayMs?: number;
  /** What it is for. An execution with several waits shows the first one's. Default `signal`. */
  reason?: WaitReason;
}

/** A waitpoint to open. */
export interface WaitpointRequest {
  name: string;
  /** Default 7 days. Once a wait suspends on it, it stays open as long as the wait may last. */
  expiresInMs?: number;
  /** A JSON Schema that payloads must match. Default: any payload. */
  schema?: Json;
}

/** Suspends until one of the waits finishes; or, as with a pause, until a time or children, whichever comes first. */
export interface SuspendRequest extends PauseRequest {
  waits: readonly WaitRequest[];
  /** Waitpoints with a schema. Waitpoints that a condition names and that do not exist are opened without one. */
  waitpoints?: readonly Omit<WaitpointRequest, 'expiresInMs'>[];
  /**
   * `poll`: starts the waits and accepts signals, but keeps the lease; returns `open` while none has finished. A wait
   * that has timed out finishes as its `onTimeout` asks, if necessary by suspending. Default `suspend`.
   */
  mode?: 'suspend' | 'poll';
}

/** The outcome of suspending. */
export type SuspendOutcome =
  | { outcome: 'suspended'; repeated: boolean }
  /** Earlier signals satisfy a wait: the lease is kept. */
  | { outcome: 'already_satisfied'; ended: { name: string; key: string; end: WaitEnd }[] }
  /** A time or child that was to be awaited beside the waits is due: the lease is kept. */
  | { outcome: 'due' }
  | { outcome: 'open' }
  | LeaseRefusal;

/** A waitpoint that its execution opened ahead of the wait. `Payload` is what its schema makes of a payload. */
export interface Waitpoint<Payload = Json> {
  waitpointId: string;
  executionId: ExecutionId;
  name: string;
  createdAtMs: number;
  /** Allows whoever has it to send signals here. It is not stored. */
  token: string;
  tokenExpiresAtMs: number;
  /** Only for the compiler. */
  readonly types?: { readonly payload: Payload } | undefined;
}

/** The waitpoint with its token, or why the lease was refused. */
export type CreateWaitpointOutcome = { outcome: 'created'; waitpoint: Waitpoint } | LeaseRefusal;

/** What a token allows, and for how long. */
export interface TokenRequest {
  /** How long it is valid; never longer than its waitpoint is open. Default 7 days. */
  expiresIn?: Duration;
  /** Who it is for: all signals sent with it have this source; a request that names another is refused. */
  source?: SignalSource;
  /** The only signal it can send. For links that people click. Default: any signal. */
  signal?: { name: string; payload?: unknown };
  /** `once`: a second signal sent with it returns `duplicate`. Default `many`. */
  use?: 'once' | 'many';
  /** Returns a link, too: this address with the token as the query parameter `ff_token`. */
  linkTo?: string;
}

/** A token. It is not stored. */
export interface IssuedToken {
  token: string;
  expiresAtMs: number;
  /** Identifies the token in lists and as a source, without revealing it. */
  fingerprint: string;
  /** Null without `linkTo`. */
  link: string | null;
}

/** A signal, sent with a token. */
export interface SignalRequest {
  /** A token, or a link that carries one. */
  token: string;
  /** The signal's name. Default: the one the token fixes, otherwise `signal`. */
  name?: string;
  /** At most 64 KB as JSON; checked against the waitpoint's schema. */
  payload?: unknown;
  /**
   * Who sends it; the caller vouches for that. Default: the token's source; without
   * one, a single anonymous source per waitpoint.
   */
  source?: SignalSource;
  /** A second signal with the same key, source and waitpoint returns `duplicate`. */
  idempotencyKey?: string;
}

/** A signal, sent by an operator without a token. */
export interface ApproveRequest {
  /** Who approves; the signal's source is `operator` with this identity. */
  by: string;
  /** Default `approved`. */
  name?: string;
  payload?: unknown;
  idempotencyKey?: string;
}

/** What a handle sends to a waitpoint. `by`: default `operator`, or the parent of a child. */
export type SignalNote = Partial<ApproveRequest>;

/** The effects a signal can have. */
export const SIGNAL_EFFECTS = ['buffered', 'not_matching', 'not_counted', 'counted', 'resumed'] as const;
/**
 * What a signal did. `buffered`: stored until the execution waits here. `not_matching`: no wait takes signals of this
 * name. `not_counted`: it adds nothing, such as the same source again. `counted`: more are needed. `resumed`: it
 * satisfied the wait.
 */
export type SignalEffect = (typeof SIGNAL_EFFECTS)[number];

/** The outcome of delivering a signal. */
export type DeliverOutcome =
  | { outcome: 'accepted'; signalId: string; effect: SignalEffect }
  /** It was delivered before; `effect` is what it did then. */
  | { outcome: 'duplicate'; signalId: string; effect: SignalEffect }
  /** Nothing waits for it any more. */
  | { outcome: 'closed' }
  /** The token or the waitpoint has expired. */
  | { outcome: 'expired' }
  /** The execution has reached its limit of signals. */
  | { outcome: 'too_many' };

/** An open waitpoint and the wait it belongs to. */
export interface PendingWaitpoint {
  executionId: ExecutionId;
  kind: string;
  lane: string;
  namespace: string;
  waitpointId: string;
  name: string;
  /** `pending`: open, but not awaited yet. `waiting`: the execution is suspended on it. */
  state: 'pending' | 'waiting';
  /** The wait it belongs to. */
  wait: { name: string; key: string } | null;
  reason: WaitReason | null;
  createdAtMs: number;
  waitingSinceMs: number | null;
  timeoutAtMs: number | null;
  expiresAtMs: number | null;
  /** Signal names that count; empty for any. */
  matches: string[];
  signalCount: number;
  /** The signing key and the fingerprint of the token issued with the waitpoint; null when none was. */
  tokenKid: string | null;
  tokenFingerprint: string | null;
}

/** A page of waitpoints. */
export interface WaitpointPage {
  waitpoints: PendingWaitpoint[];
  cursor: string | null;
}

/** Which waitpoints to list, and how many per page. */
export interface WaitpointListRequest {
  /**
   * Lists all open waitpoints of this execution. Default: those that any execution is suspended on, longest wait first.
   */
  executionId?: string;
  /** Waitpoints per page, 1 to 1,000. Default 100. */
  limit?: number;
  cursor?: string;
}

/** A key that tokens are or were signed with. */
export interface SigningKey {
  kid: string;
  state: 'signing' | 'verifying' | 'expired' | 'revoked';
  /** `foreign`: derived from a secret this process does not have. */
  secret: 'known' | 'foreign';
  createdAtMs: number;
  verifiesUntilMs: number | null;
  revokedAtMs: number | null;
}

/** Options of rotating the signing key. */
export interface RotateRequest {
  /** How long tokens of the old key stay valid. Default: until the last of them expires. */
  grace?: Duration;
}

/** The outcome of revoking a key. */
export type RevokeKeyOutcome =
  | { outcome: 'revoked' | 'already_revoked' | 'not_found' }
  /** It is the current signing key: rotate with `grace: 0` instead. */
  | { outcome: 'is_current' };
