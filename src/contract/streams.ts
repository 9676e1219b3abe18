/**
 * The output of attempts: frames, the summary document built from patches, and following both from any cursor.
 */
import type { Json } from './json.ts';
import type { Duration } from './shape/duration.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { StepKey } from './steps.ts';
import type { BlockingReason, PublicState } from './states.ts';

/**
 * How frames are kept. `durable`: as long as the execution. `summary`: the same, and the frame is a patch of the
 * attempt's document. `best_effort`: for a short time, and committed without waiting for the disk.
 */
export const FRAME_MODES = ['durable', 'summary', 'best_effort'] as const;
/** How a frame is kept. */
export type FrameMode = (typeof FRAME_MODES)[number];

/** The encodings of a frame's bytes. */
export const FRAME_ENCODINGS = ['text', 'json', 'binary'] as const;
/** The encoding of a frame's bytes. */
export type FrameEncoding = (typeof FRAME_ENCODINGS)[number];

/** In a patch this string stands for an intended null; a bare null removes its key. */
export const SUMMARY_NULL = '__ff_null__';

/** One frame to write. */
export interface FrameRequest {
  /**
   * A string, bytes, or anything JSON can represent. With `summary`: a JSON Merge Patch (RFC 7396) as an object or as
   * bytes of JSON.
   */
  payload: unknown;
  /**
   * Default: `text` for a string, `binary` for bytes, `json` for everything else. Bytes marked as text or JSON are
   * checked.
   */
  encoding?: FrameEncoding;
  /** Default `durable`. */
  mode?: FrameMode;
  /** Lets readers distinguish frames. Default `event`. */
  frameType?: string;
  correlationId?: string;
  /** The step it belongs to: once that has finished, the frame is not written again. */
  step?: StepKey & { tryIndex?: number };
  /**
   * Set by a handler that ran again and wrote something else than before: the id of the first frame of the same attempt,
   * type and mode, written outside of steps, that no longer counts.
   */
  supersedes?: string;
  /** Finished steps of earlier attempts whose frames come before this one. Default: all of them. */
  after?: readonly { name: string; key: string }[];
  /** What is applied to the document in place of a patch, as bytes of JSON; the patch itself is kept. */
  applied?: Uint8Array;
}

/** A frame that an attempt has written outside of steps, as a handler that runs again compares it. */
export interface WrittenFrame {
  id: string;
  frameType: string;
  mode: Exclude<FrameMode, 'best_effort'>;
  /** The encoding and, after a colon, the SHA-256 of the payload in hexadecimal. */
  digest: string;
}

/** Whose output stays when an attempt ends: a finished step, or a child. */
export type OutputSource = { step: { name: string; key: string } } | { child: string };

/** What an execution has written before the current lease, and what of it counts. */
export interface WrittenOutput {
  /** What this attempt has written outside of steps, in order, without what was superseded. At most `comparedFrames`. */
  frames: WrittenFrame[];
  /** Finished steps of earlier attempts that have frames. */
  steps: { name: string; key: string }[];
  /** Sources of patches in any attempt. */
  patchedBy: OutputSource[];
  /** Whether the document contains patches that no longer count: of a step that did not finish. */
  hasLeftovers: boolean;
}

/** A patch that counts as it was written, with its source; null when it was written outside of steps in this attempt. */
export interface WrittenPatch {
  id: string;
  source: OutputSource | null;
  patch: { [key: string]: Json };
}

/** The document, and the patches in any attempt that count. */
export interface WrittenPatches {
  document: { [key: string]: Json };
  /** In the order they were written; null when there are more than `refoldedPatches`. */
  patches: WrittenPatch[] | null;
}

/** How many best-effort frames are kept: about twice as many as arrive in `ttlMs` at the recent rate. */
export interface BestEffortOptions {
  /** In milliseconds; 5 to 30 seconds suit most streams. Default 10,000. */
  ttlMs?: number;
  /** The fewest and the most frames to keep. Default 64 and 16,384. */
  floor?: number;
  ceiling?: number;
  /** Weight of the latest rate in the average, above 0 and up to 1. Default 0.2. */
  alpha?: number;
}

/** Options of one append call. */
export interface AppendOptions {
  bestEffort?: BestEffortOptions;
  /**
   * A UUID that identifies the call, to repeat it when its outcome is unknown: the frames are written once, as long as
   * nothing else was appended in between. Default: a new one.
   */
  appendId?: string;
}

/** The ids of the written frames, or why the lease was refused. */
export type AppendOutcome =
  | {
      outcome: 'appended';
      /** Ids of the first and last frame of this call. */
      firstId: string;
      lastId: string;
      /** Frames and bytes the attempt has written so far, including trimmed ones. */
      frameCount: number;
      totalBytes: number;
      summaryVersion: number | null;
    }
  | LeaseRefusal;

/** One frame as readers receive it. */
export interface StreamFrame {
  /** `<ms>-<seq>`; grows within an attempt. */
  id: string;
  attemptIndex: number;
  /** The epoch of the lease it was written under. */
  leaseEpoch: number;
  mode: FrameMode;
  frameType: string;
  correlationId: string | null;
  /** The step and the try that wrote it: a later try supersedes what an earlier one wrote. */
  step: { name: string; key: string; tryIndex: number } | null;
  /** The document's version after this patch; null for other frames. */
  summaryVersion: number | null;
  /** The child that patched the document of this execution, its parent; null for what the execution wrote itself. */
  child: string | null;
  /** The first frame of the same attempt, type and mode that no longer counts; `restarted` tells of it. */
  supersedes: string | null;
  /**
   * The finished steps of earlier attempts that its handler had come past since it wrote the last frame of this type:
   * their frames come before this one, those of others after it. `foldStream` puts them there. Null: all of them come before it.
   */
  after: readonly { name: string; key: string }[] | null;
  /**
   * What was applied to the document in place of this patch, because its handler ran again and had not come past others
   * that follow it. Null: the patch itself.
   */
  applied: { [key: string]: Json } | null;
  encoding: FrameEncoding;
  /** A string for text, bytes for binary, the value for JSON. */
  payload: Json | Uint8Array;
  /** The payload's bytes as written. */
  bytes: Uint8Array;
}

/** Why a stream can be closed. */
export const STREAM_CLOSE_REASONS = [
  'attempt_success',
  'attempt_failure',
  'attempt_cancelled',
  'reclaimed',
  'lease_expired',
  'expired',
] as const;
/** Why the stream of an attempt was closed. */
export type StreamCloseReason = (typeof STREAM_CLOSE_REASONS)[number];

/** When and why a stream was closed. */
export interface StreamClosed {
  atMs: number;
  reason: StreamCloseReason;
}

/** Whether best-effort frames are read, too. */
export type StreamVisibility = 'all' | 'exclude_best_effort';

/** Which frames to read. A bound is `start`, `end`, `<ms>` or `<ms>-<seq>`; both are inclusive. */
export interface ReadStreamRequest {
  /** Default: the latest attempt. */
  attemptIndex?: number;
  /** The bounds. Default `start` and `end`. */
  from?: string;
  to?: string;
  /** 1 to 10,000. Default 1,000. */
  limit?: number;
  /** `backward`: the newest frames of the range first. Default `forward`. */
  direction?: 'forward' | 'backward';
  /** Default `all`. */
  visibility?: StreamVisibility;
}

/** Frames of one attempt. */
export interface StreamPage {
  attemptIndex: number;
  frames: StreamFrame[];
  /** Whether there are no more frames in the range for now. A page may stop before its limit when it gets too long. */
  isComplete: boolean;
  /** Null while the stream may still be written to, or while there are more frames to read. */
  closed: StreamClosed | null;
  frameCount: number;
  totalBytes: number;
}

/** Where a tail starts, and which frames it yields. */
export interface TailRequest {
  /** Follows only this attempt. Default: all attempts, one after the other. */
  attemptIndex?: number;
  /**
   * Starts after this frame (`<ms>-<seq>`, with `attemptIndex`) or after the cursor of an item. Default: from the
   * beginning.
   */
  after?: string;
  visibility?: StreamVisibility;
  signal?: AbortSignal;
}

/**
 * What a tail yields, each with the cursor to resume after it. A tail resumed from a cursor repeats no frame, gap or
 * attempt; `resumed`, `restarted`, `paused` and `closed` may be repeated once.
 */
export type StreamItem = { cursor: string; attemptIndex: number } & (
  | { type: 'frame'; frame: StreamFrame }
  /** Best-effort frames that were trimmed before they could be read. */
  | { type: 'gap'; missed: number }
  /**
   * The attempt has a worker again, under another lease, and its handler runs from the top. Only what it wrote inside
   * steps that are not finished is written again.
   */
  | { type: 'resumed'; leaseEpoch: number; finishedSteps: { name: string; key: string }[] }
  /**
   * The handler ran again and wrote something else than before: frames of this attempt, type and mode that were written
   * outside of steps no longer count, from the one with the id `from` on. The next frame is the first of the new ones.
   */
  | { type: 'restarted'; stream: string; mode: FrameMode; from: string }
  /** The attempt freed its worker and will continue. */
  | { type: 'paused'; reason: BlockingReason }
  /** The attempt has finished. Another one may follow. */
  | { type: 'closed'; reason: StreamCloseReason }
  /** Another attempt follows: what this one wrote outside finished steps no longer counts. */
  | { type: 'superseded'; by: number; finishedSteps: { name: string; key: string }[] }
  /** The execution's retention is over and it was deleted. */
  | { type: 'forgotten' }
);

/** Where to read, and how long to wait for frames. */
export interface TailOnceRequest {
  attemptIndex: number;
  /** Reads frames after this id. Default `0-0`, the beginning. */
  after?: string;
  /** How long to wait for a frame or for the stream to close, up to 30 s. Default 0. */
  block?: Duration;
  /** 1 to 10,000. Default 1,000. */
  limit?: number;
  visibility?: StreamVisibility;
}

/** The summary document of an attempt. It begins with what finished steps of earlier attempts patched. */
export interface StreamSummary {
  attemptIndex: number;
  document: { [key: string]: Json };
  /** Starts at 1 and grows by one with each patch; the next attempt continues the count. */
  version: number;
  patchKind: 'json-merge-patch';
  firstAppliedAtMs: number;
  lastUpdatedAtMs: number;
}

/** Which document to watch, and until when. */
export interface WatchSummaryRequest {
  attemptIndex?: number;
  signal?: AbortSignal;
}

/**
 * First the current document, then each patch once; another `document` when another attempt starts, with what is kept of
 * the one before.
 */
export type SummaryItem = { attemptIndex: number } & (
  | { type: 'document'; document: { [key: string]: Json }; version: number }
  | { type: 'patch'; patch: { [key: string]: Json }; version: number }
  | { type: 'closed'; reason: StreamCloseReason }
);

/**
 * A change of a parent's document by one of its children: a JSON Merge Patch, or by how much the number at a path grows.
 * Whatever is no number there counts as 0.
 */
export type ParentChange = { patch: object } | { path: readonly string[]; by: number };

/** Whether an execution has a parent, and whether that has ended. */
export type ParentState = 'active' | 'not_active' | 'none';

/** A finished step of a child. */
export interface ParentStep extends StepKey {
  value?: unknown;
  durationMs?: number;
}

/** Until when to watch. */
export interface WatchRequest {
  signal?: AbortSignal;
}

/**
 * What a page shows of an execution. Each item replaces the one of its type before; the last item is the state the
 * execution ended in.
 */
export type WatchItem =
  | { type: 'document'; attemptIndex: number; document: { [key: string]: Json }; version: number }
  | { type: 'progress'; percent: number | null; message: string | null; reportedAtMs: number }
  | { type: 'state'; state: PublicState; attemptIndex: number };
