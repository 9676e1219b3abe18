/**
 * The output of attempts: frames, the document patches make, and following both from
 * any place.
 */
import type { Json } from './json.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { StepKey } from './steps.ts';
import type { BlockingReason } from './states.ts';

/**
 * `durable`: kept as long as the execution. `summary`: the same, and a patch of the attempt's document. `best_effort`: kept while it is
 * news; committed without waiting for the disk.
 */
export const FRAME_MODES = ['durable', 'summary', 'best_effort'] as const;
/** How long a frame is kept. */
export type FrameMode = (typeof FRAME_MODES)[number];

/** How the bytes of a frame are to be read. */
export const FRAME_ENCODINGS = ['text', 'json', 'binary'] as const;
/** How the bytes of a frame are to be read. */
export type FrameEncoding = (typeof FRAME_ENCODINGS)[number];

/** In a patch this text stands for a null that is meant; a bare null takes its member away. */
export const SUMMARY_NULL = '__ff_null__';

/** One frame to write. */
export interface FrameRequest {
  /** A text, bytes, or anything JSON can say. With `summary`: an object, a JSON Merge Patch (RFC 7396), or its JSON text as bytes. */
  payload: unknown;
  /** Default: `text` for a string, `binary` for bytes, `json` for the rest. Bytes may be marked as text or JSON, and are then checked. */
  encoding?: FrameEncoding;
  /** Default `durable`. */
  mode?: FrameMode;
  /** For readers to tell frames apart. Default `event`. */
  frameType?: string;
  correlationId?: string;
  /** The step it is written in: once that is finished, the frame is not written again. */
  step?: StepKey & { tryIndex?: number };
}

/** How many best-effort frames are kept: about twice those of `ttlMs`, by how fast they came lately. */
export interface BestEffortOptions {
  /** 5 to 30 seconds for most. Default 10,000. */
  ttlMs?: number;
  /** Never fewer, never more. Default 64 and 16,384. */
  floor?: number;
  ceiling?: number;
  /** Weight of the latest rate, over 0 to 1. Default 0.2. */
  alpha?: number;
}

/** How frames are written. */
export interface AppendOptions {
  bestEffort?: BestEffortOptions;
  /**
   * A UUID that names the call. Made again under its name, because nobody knows whether it was written, it is answered and written
   * once; as long as nothing else was appended since. Default: a new one.
   */
  appendId?: string;
}

/** Where the frames are now, or why the lease was refused. */
export type AppendOutcome =
  | {
      outcome: 'appended';
      /** Of the first and last frame of this call. */
      firstId: string;
      lastId: string;
      /** Frames and bytes the attempt has written, trimmed ones included. */
      frameCount: number;
      totalBytes: number;
      summaryVersion: number | null;
    }
  | LeaseRefusal;

/** One frame, as readers get it. */
export interface StreamFrame {
  /** `<ms>-<seq>`, growing within an attempt. */
  id: string;
  attemptIndex: number;
  /** Of the lease it was written under. */
  leaseEpoch: number;
  mode: FrameMode;
  frameType: string;
  correlationId: string | null;
  /** The step it was written in, and the try of it: a later try writes anew what an earlier one wrote. */
  step: { name: string; key: string; tryIndex: number } | null;
  /** After this patch, when it is one. */
  summaryVersion: number | null;
  encoding: FrameEncoding;
  /** A string for text, bytes for binary, the value for JSON. */
  payload: Json | Uint8Array;
  /** As they were written. */
  bytes: Uint8Array;
}

/** Every way an attempt can end. */
export const STREAM_CLOSE_REASONS = [
  'attempt_success',
  'attempt_failure',
  'attempt_cancelled',
  'reclaimed',
  'lease_expired',
  'expired',
] as const;
/** Why nothing more comes from an attempt. */
export type StreamCloseReason = (typeof STREAM_CLOSE_REASONS)[number];

/** When and why a stream was closed. */
export interface StreamClosed {
  atMs: number;
  reason: StreamCloseReason;
}

/** Whether frames that are kept only for a while are read too. */
export type StreamVisibility = 'all' | 'exclude_best_effort';

/** `start`, `end`, `<ms>` or `<ms>-<seq>`. Both ends of a range belong to it. */
export interface ReadStreamRequest {
  /** Default: the latest attempt. */
  attemptIndex?: number;
  /** Default `start` and `end`. */
  from?: string;
  to?: string;
  /** 1 to 10,000. Default 1,000. */
  limit?: number;
  /** `backward`: the last frames of the range first. Default `forward`. */
  direction?: 'forward' | 'backward';
  /** Default `all`. */
  visibility?: StreamVisibility;
}

/** Frames of one attempt. */
export interface StreamPage {
  attemptIndex: number;
  frames: StreamFrame[];
  /** Whether there are no more frames in the range, as of now. Long pages end sooner than at their limit. */
  isComplete: boolean;
  /** Null while it may still be written to, and while there are frames to read. */
  closed: StreamClosed | null;
  frameCount: number;
  totalBytes: number;
}

/** Where a tail begins. */
export interface TailRequest {
  /** Only this attempt. Default: the execution, attempt after attempt. */
  attemptIndex?: number;
  /** After this frame: `<ms>-<seq>`, of one attempt; or a cursor of an item. Default: from the beginning. */
  after?: string;
  visibility?: StreamVisibility;
  signal?: AbortSignal;
}

/**
 * What a tail tells, each with the cursor to go on after it. Who goes on gets no frame, gap or attempt twice; that the attempt was begun
 * again, is paused or closed may be told once more.
 */
export type StreamItem = { cursor: string; attemptIndex: number } & (
  | { type: 'frame'; frame: StreamFrame }
  /** Best-effort frames that were trimmed before they could be read. */
  | { type: 'gap'; missed: number }
  /** The attempt goes on under another lease: what it wrote outside of finished steps is written again. */
  | { type: 'restarted'; leaseEpoch: number; finishedSteps: { name: string; key: string }[] }
  /** The attempt gave its worker up, and will go on. */
  | { type: 'paused'; reason: BlockingReason }
  /** The attempt is over. Another one may follow. */
  | { type: 'closed'; reason: StreamCloseReason }
  /** Another attempt follows: what this one wrote outside of finished steps no longer counts. */
  | { type: 'superseded'; by: number; finishedSteps: { name: string; key: string }[] }
  /** The execution was kept as long as it was to be, and is gone. */
  | { type: 'forgotten' }
);

/** Where to read, and how long to wait for something. */
export interface TailOnceRequest {
  attemptIndex: number;
  /** Default `0-0`. */
  after?: string;
  /** How long to wait for a frame or the end, 0 to 30,000. Default 0. */
  blockMs?: number;
  limit?: number;
  visibility?: StreamVisibility;
}

/** The document of an attempt, as its patches made it. */
export interface StreamSummary {
  attemptIndex: number;
  document: { [key: string]: Json };
  /** From 1; one more with each patch. */
  version: number;
  patchKind: 'json-merge-patch';
  firstAppliedAtMs: number;
  lastUpdatedAtMs: number;
}

/** Which document is watched, and until when. */
export interface WatchSummaryRequest {
  attemptIndex?: number;
  signal?: AbortSignal;
}

/** First the document as it is, then each patch once. `document` again when another attempt begins. */
export type SummaryItem = { attemptIndex: number } & (
  | { type: 'document'; document: { [key: string]: Json }; version: number }
  | { type: 'patch'; patch: { [key: string]: Json }; version: number }
  | { type: 'closed'; reason: StreamCloseReason }
);
