/**
 * Frames of streams, checked and encoded before anything is written. A frame that would not read back as it was given
 * is refused here: by the worker at the call that wrote it, and by the engine for all other callers. What the worker
 * has encoded passes through the engine unchanged.
 */
import { EngineError } from '../contract/errors.ts';
import { choice, isWellFormed, list, parsed, string, whole } from '../contract/shape/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { fault, Kind, refuse, shape } from '../contract/shape/shape.ts';
import {
  FRAME_ENCODINGS,
  FRAME_MODES,
  type FrameEncoding,
  type FrameMode,
  type FrameRequest,
} from '../contract/streams.ts';
import { encodeJson } from './json.ts';
import { patchFault, type PatchFault } from './merge-patch.ts';

/** A frame as it is stored. It is also a complete request, so that it can be passed on like any other. */
export interface EncodedFrame extends FrameRequest {
  readonly mode: FrameMode;
  readonly encoding: FrameEncoding;
  readonly frameType: string;
  readonly correlationId?: string;
  readonly step?: Readonly<{ name: string; key: string; tryIndex: number }>;
  readonly supersedes?: string;
  readonly after?: readonly { name: string; key: string }[];
  readonly applied?: Uint8Array;
  /** A copy, because the caller may change the original. */
  readonly payload: Uint8Array;
}

/** Frames that were encoded here and need no further check. A copy of one is an ordinary request. */
const ENCODED = new WeakSet<FrameRequest>();

const FRAME_ID = /^[0-9]{1,16}-[0-9]{1,16}$/;

const finishedStep = shape<{ name: string; key: string }>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0),
});

const frameRequest = shape<FrameRequest>({
  payload: parsed,
  encoding: choice(FRAME_ENCODINGS).optional(),
  mode: choice(FRAME_MODES).optional(),
  frameType: string(LIMITS.frameTypeBytes).optional(),
  correlationId: string(LIMITS.correlationBytes).optional(),
  step: shape<NonNullable<FrameRequest['step']>>({
    name: string(LIMITS.stepNameBytes),
    key: string(LIMITS.stepKeyBytes, 0).optional(),
    tryIndex: whole(0, LIMITS.maxRetries).optional(),
  }).optional(),
  supersedes: new Kind<string>((id) =>
    typeof id === 'string' && FRAME_ID.test(id) ? undefined : fault('must be the id of a frame'),
  ).optional(),
  after: list(finishedStep, LIMITS.steps).optional(),
  applied: parsed.optional(),
});
const DEFAULT_TYPE = 'event';

export function encodeFrame(frame: FrameRequest, field: string): EncodedFrame {
  if (ENCODED.has(frame)) return frame as EncodedFrame;
  frameRequest.check(frame, field);
  const { mode = 'durable', frameType = DEFAULT_TYPE, correlationId, step, supersedes, after } = frame;
  const encoding = mode === 'summary' ? 'json' : (frame.encoding ?? encodingOf(frame.payload));
  const payload = bytesOf(frame.payload, encoding, `${field}.payload`);
  if (payload.length > LIMITS.frameBytes) refuseSize(payload.length, `${field}.payload`);
  if (mode === 'summary') checkPatch(frame, payload, field);
  const applied = appliedOf(frame, mode, field);
  const encoded: EncodedFrame = Object.freeze({
    mode,
    encoding,
    payload,
    frameType,
    ...(correlationId === undefined ? {} : { correlationId }),
    ...(step === undefined
      ? {}
      : { step: Object.freeze({ name: step.name, key: step.key ?? '', tryIndex: step.tryIndex ?? 0 }) }),
    ...(supersedes === undefined ? {} : { supersedes }),
    ...(after === undefined ? {} : { after }),
    ...(applied === undefined ? {} : { applied }),
  });
  ENCODED.add(encoded);
  return encoded;
}

/** Whether the frame has something that only a handler which runs again says. */
export function isOfRerun({ supersedes, after, applied }: EncodedFrame): boolean {
  return supersedes !== undefined || after !== undefined || applied !== undefined;
}

function appliedOf({ applied }: FrameRequest, mode: FrameMode, field: string): Uint8Array | undefined {
  if (applied === undefined) return undefined;
  if (mode !== 'summary') refuse(`${field}.applied`, 'can be given with a patch only');
  return encodeFrame({ payload: applied, mode }, `${field}.applied`).payload;
}

function refuseSize(bytes: number, field: string): never {
  refuse(field, `is ${bytes} bytes; the limit of a frame is ${LIMITS.frameBytes}`, 'payload_too_large');
}

function encodingOf(payload: unknown): FrameEncoding {
  if (typeof payload === 'string') return 'text';
  return payload instanceof Uint8Array ? 'binary' : 'json';
}

function bytesOf(payload: unknown, encoding: FrameEncoding, field: string): Uint8Array {
  if (payload instanceof Uint8Array) return markedBytes(payload, encoding, field);
  if (encoding === 'binary') refuse(field, 'must be bytes (a Uint8Array)');
  if (encoding === 'json') {
    const text = encodeJson(payload, field);
    return text === null ? refuse(field, 'must be given') : new TextEncoder().encode(text);
  }
  if (typeof payload !== 'string') refuse(field, 'must be a string');
  if (!isWellFormed(payload)) refuse(field, 'contains half of a surrogate pair, which is not valid text');
  return new TextEncoder().encode(payload);
}

/** Bytes with a declared encoding must be valid in it. They are stored unchanged. */
function markedBytes(payload: Uint8Array, encoding: FrameEncoding, field: string): Uint8Array {
  if (payload.length > LIMITS.frameBytes) refuseSize(payload.length, field);
  const bytes = new Uint8Array(payload);
  if (encoding === 'binary') return bytes;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    refuse(field, 'is marked as text and is not valid UTF-8');
  }
  if (encoding === 'json') parse(text, field);
  return bytes;
}

function parse(text: string, field: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new EngineError('invalid_input', `${field} is not valid JSON.`, { field, cause });
  }
}

const PATCH_FAULTS: Record<PatchFault, string> = {
  not_an_object: 'must be an object: a JSON Merge Patch of the document',
  too_deep: `is nested deeper than ${LIMITS.patchDepth} levels`,
  dangerous_key: 'has a member named __proto__, constructor or prototype',
};

function checkPatch(frame: FrameRequest, payload: Uint8Array, field: string): void {
  if (frame.encoding !== undefined && frame.encoding !== 'json')
    refuse(`${field}.encoding`, 'of a patch must be json');
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(payload);
  const patch = parse(text, `${field}.payload`);
  const found = patchFault(patch);
  if (found !== undefined) refuse(`${field}.payload`, PATCH_FAULTS[found]);
  // Text can encode what a document cannot store: \u0000, half of a surrogate pair, a number out of range.
  if (frame.payload instanceof Uint8Array) encodeJson(patch, `${field}.payload`);
}
