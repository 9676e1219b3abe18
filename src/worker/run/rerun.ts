/**
 * The output of a handler that runs again from the top, compared with what earlier runs have written. Outside of steps
 * the same is not written again; from the first difference on, what was written before is superseded. Best-effort frames
 * are not compared: they are dropped until the run has come as far as the ones before. Patches of documents that are
 * written before steps which are finished are folded in before what those steps patched: see rerun-document.ts.
 */
import { createHash } from 'node:crypto';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { StepRecord } from '../../contract/steps.ts';
import type { WrittenFrame, WrittenOutput } from '../../contract/streams.ts';
import { encodeFrame, type EncodedFrame } from '../../model/frames.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { insist } from './insist.ts';
import { RerunDocument, sourceName } from './rerun-document.ts';

/** How far the run was when it wrote something. */
export interface RunPlace {
  /** Outputs of earlier runs that it has come past. */
  passed: number;
  /** Recorded ends that it has come past. */
  ends: number;
}

/** Frames of one name and mode that an earlier run wrote, and how many of them this run has written. */
interface Stream {
  frames: WrittenFrame[];
  same: number;
}

export class Rerun {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  readonly #stored: () => Promise<readonly StepRecord[]>;
  /** Names of what the run has come past, in order. */
  readonly #passed: string[] = [];
  #ends = 0;
  #written: Promise<WrittenOutput> | undefined;
  #streams: Map<string, Stream> | undefined;
  /** Steps of earlier attempts that have frames, and those of them that the run has not come past. */
  #earlier: ReadonlySet<string> = new Set();
  #unpassed = new Set<string>();
  /** By stream: how many of those passed its frames have told of. */
  readonly #told = new Map<string, number>();
  /** How many of those passed have been considered. */
  #considered = 0;
  #document: RerunDocument | undefined;

  /** `stored`: the steps that were recorded before this run. */
  constructor(port: WorkerPort, lease: HeldLease, stored: () => Promise<readonly StepRecord[]>) {
    this.#port = port;
    this.#lease = lease;
    this.#stored = stored;
  }

  /** The run has received what is stored of a step, a sleep or a wait. */
  passedStep(record: StepRecord): void {
    if (record.kind === 'step') this.#passed.push(sourceName({ step: record }));
    if (isEnd(record)) this.#ends += 1;
  }

  passedChild(executionId: string): void {
    this.#passed.push(sourceName({ child: executionId }));
  }

  /** Where the run is now. */
  get place(): RunPlace {
    return { passed: this.#passed.length, ends: this.#ends };
  }

  /** The frame to write in place of this one; undefined when it was written before. In the order of the writes. */
  async sift(frame: EncodedFrame, { passed, ends }: RunPlace): Promise<EncodedFrame | undefined> {
    if (frame.mode === 'best_effort') return ends < (await this.#recorded()) ? undefined : frame;
    const written = await this.#load();
    this.#consider(passed);
    const said: { supersedes?: string } = {};
    if (frame.step === undefined) {
      const found = this.#compare(frame);
      if (found === 'same') return undefined;
      if (found !== undefined) said.supersedes = found;
    }
    const after = this.#placing(frame);
    const applied = frame.mode === 'summary' ? await this.#document!.fold(frame.payload, written) : undefined;
    const more = {
      ...said,
      ...(applied === undefined ? {} : { applied }),
      ...(after === undefined ? {} : { after }),
    };
    return Object.keys(more).length === 0 ? frame : encodeFrame({ ...frame, ...more }, 'frame');
  }

  async #recorded(): Promise<number> {
    return (await this.#stored()).filter(isEnd).length;
  }

  async #load(): Promise<WrittenOutput> {
    this.#written ??= insist(this.#lease, () => this.#port.readWritten(this.#lease.claim));
    const written = await this.#written;
    if (this.#streams !== undefined) return written;
    this.#streams = new Map();
    for (const frame of written.frames) {
      const known = this.#streams.get(streamName(frame));
      if (known === undefined) this.#streams.set(streamName(frame), { frames: [frame], same: 0 });
      else known.frames.push(frame);
    }
    this.#earlier = new Set(written.steps.map((step) => sourceName({ step })));
    this.#unpassed = new Set(this.#earlier);
    const read = () => insist(this.#lease, () => this.#port.readPatches(this.#lease.claim));
    this.#document = new RerunDocument(written, read);
    return written;
  }

  /** Takes into account what the run had passed when it wrote the frame. */
  #consider(passed: number): void {
    for (; this.#considered < passed; this.#considered += 1) {
      const name = this.#passed[this.#considered]!;
      this.#unpassed.delete(name);
      this.#document!.pass(name);
    }
  }

  /** `same` if it was written before; the id of the first frame that differs from what is written now. */
  #compare(frame: EncodedFrame): 'same' | string | undefined {
    const stream = this.#streams!.get(streamName(frame));
    const next = stream?.frames[stream.same];
    if (stream === undefined || next === undefined) return undefined;
    if (next.digest === digestOf(frame)) {
      stream.same += 1;
      if (frame.mode === 'summary') this.#document!.repeat(next.id);
      return 'same';
    }
    const gone = stream.frames.splice(stream.same);
    if (frame.mode === 'summary') this.#document!.withdraw(gone.map(({ id }) => id));
    return next.id;
  }

  /**
   * Steps of earlier attempts that the run has come past since it wrote to the stream: their frames come before the one
   * that is written now. For each stream by itself, because it may be read by itself. Undefined when all of them do.
   */
  #placing(frame: EncodedFrame): { name: string; key: string }[] | undefined {
    if (this.#unpassed.size === 0) return undefined;
    const stream = streamName(frame);
    const passed = this.#passed.slice(this.#told.get(stream) ?? 0, this.#considered);
    this.#told.set(stream, this.#considered);
    return passed.filter((name) => this.#earlier.has(name)).map(stepNamed);
  }
}

function stepNamed(source: string): { name: string; key: string } {
  const [, name, key] = JSON.parse(source) as [string, string, string];
  return { name, key };
}

function streamName({ mode, frameType }: Pick<WrittenFrame | EncodedFrame, 'mode' | 'frameType'>): string {
  return `${mode} ${frameType}`;
}

function digestOf({ encoding, payload }: EncodedFrame): string {
  return `${encoding}:${createHash('sha256').update(payload).digest('hex')}`;
}

/** A sleep that is not over, and a wait that nothing has met, have not ended. */
function isEnd({ kind, end, dueInMs }: StepRecord): boolean {
  return kind === 'step' || end !== null || dueInMs === 0;
}
