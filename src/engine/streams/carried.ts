/**
 * Frames that travel in the notification of their own commit, so that a tail in another process need not read them. The
 * notification is written before the database knows their ids; those are appended to its text by the statement. A hub
 * believes them only if they follow what it has read last: the text may be forged, lost or late, but a chain that fits
 * has no gap.
 */
import { isOfRerun, type EncodedFrame } from '../../model/frames.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import type { StreamRead } from './source.ts';
import { decodeFrame } from './source.ts';

/** Payloads of one append together: larger ones are read. */
const MAX_BYTES = 2_000;
/** The whole text, with room for the ids; a notification takes just under 8,000 bytes. */
const MAX_TEXT_BYTES = 7_800;

/** Mode, encoding, type, correlation, step and payload of a frame; bytes that are no text are in base64. */
type Told = [
  mode: 'durable' | 'best_effort',
  encoding: EncodedFrame['encoding'],
  frameType: string,
  correlationId: string | null,
  step: [name: string, key: string, tryIndex: number] | null,
  payload: string,
];

/** What the writer knows before the commit. */
export interface Writing {
  attempt: number;
  epoch: number;
  frames: Told[];
}

/** Frames as they were carried, with the place they follow. */
export interface Carried {
  uuid: string;
  attemptIndex: number;
  leaseEpoch: number;
  after: { tsMs: number; seq: number };
  /** As if they had been read: the attempt was running when they were committed. */
  read: StreamRead;
}

/** Undefined when they are too large, of a handler that runs again, or patch a document: its version is not known yet. */
export function writingOf(lease: LeaseKey, frames: readonly EncodedFrame[]): Writing | undefined {
  const bytes = frames.reduce((sum, { payload }) => sum + payload.length, 0);
  const isPlain = (frame: EncodedFrame): boolean => frame.mode !== 'summary' && !isOfRerun(frame);
  if (bytes > MAX_BYTES || !frames.every(isPlain)) return undefined;
  const writing = { attempt: lease.attemptIndex, epoch: lease.leaseEpoch, frames: frames.map(toldOf) };
  return Buffer.byteLength(JSON.stringify(writing)) > MAX_TEXT_BYTES ? undefined : writing;
}

function toldOf({ mode, encoding, frameType, correlationId, step, payload }: EncodedFrame): Told {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  return [
    mode as Told[0],
    encoding,
    frameType,
    correlationId ?? null,
    step === undefined ? null : [step.name, step.key, step.tryIndex],
    bytes.toString(encoding === 'binary' ? 'base64' : 'utf8'),
  ];
}

/** Undefined when they were appended before, or the text is not what a writer of this version sends. */
export function carriedOf(uuid: string, wrote: unknown, at: unknown): Carried | undefined {
  if (!Array.isArray(at) || at.length !== 4 || !at.every(Number.isSafeInteger)) return undefined;
  const [tsMs, lastSeq, totalBytes, prevTsMs] = at as [number, number, number, number];
  try {
    const { attempt: attemptIndex, epoch: leaseEpoch, frames: told } = wrote as Writing;
    const before = lastSeq - told.length;
    const frames = told.map(([mode, encoding, frameType, correlationId, step, payload], index) =>
      decodeFrame(
        {
          tsMs,
          seq: before + index + 1,
          leaseEpoch,
          mode,
          encoding,
          frameType,
          correlationId,
          stepName: step?.[0] ?? null,
          stepKey: step?.[1] ?? null,
          stepTry: step?.[2] ?? null,
          summaryVersion: null,
          childId: null,
          supersedes: null,
          afterSteps: null,
          applied: null,
          bytes: Buffer.from(payload, encoding === 'binary' ? 'base64' : 'utf8'),
        },
        attemptIndex,
        0,
      ),
    );
    const head = {
      lastTsMs: tsMs,
      lastSeq,
      totalBytes,
      pausedBy: null,
      activeEpoch: leaseEpoch,
      currentAttempt: attemptIndex,
      phase: 'active' as const,
      closed: null,
    };
    const read = { attemptIndex, frames, isComplete: true, head };
    return { uuid, attemptIndex, leaseEpoch, after: { tsMs: prevTsMs, seq: before }, read };
  } catch {
    return undefined;
  }
}
