/**
 * Patches of a run that has not come as far as the ones before. What finished steps patched is in the document already,
 * and the handler writes patches that come before it. Applied as they are, they would undo what followed: progress would
 * run backwards, and stay there, because a finished step patches nothing again. So what is applied instead is the patch
 * that leads to the document in the order of the handler: what it has done so far, then what it has still to come past.
 * Stored is what the handler wrote: only that means the same in any order.
 */
import type { OutputSource, WrittenOutput, WrittenPatch, WrittenPatches } from '../../contract/streams.ts';
import { LIMITS } from '../../contract/limits.ts';
import { applyPatch, patchBetween, type JsonObject } from '../../model/merge-patch.ts';

interface Folding {
  /** The document as readers see it. */
  shown: JsonObject;
  /** What the patches make that this run has written or come past. */
  done: JsonObject;
  /** What it has not come past, in the order it was written. */
  ahead: WrittenPatch[];
}

export class RerunDocument {
  readonly #read: () => Promise<WrittenPatches>;
  /** Sources of patches that the run has not come past. */
  readonly #ahead: Set<string>;
  /** Patches written outside of steps that it has not repeated. */
  readonly #unrepeated: Set<string>;
  readonly #withdrawn = new Set<string>();
  /** In the order of the run: names of sources, ids of repeated patches. */
  readonly #events: string[] = [];
  #state: 'undecided' | 'plain' | Folding = 'undecided';

  constructor(written: WrittenOutput, read: () => Promise<WrittenPatches>) {
    this.#read = read;
    this.#ahead = new Set(written.patchedBy.map(sourceName));
    const patches = written.frames.filter(({ mode }) => mode === 'summary');
    this.#unrepeated = new Set(patches.map(({ id }) => id));
  }

  /** The run has come past a step or a child. */
  pass(source: string): void {
    if (this.#ahead.delete(source)) this.#happened(source);
  }

  /** The run has written a patch that is there. */
  repeat(id: string): void {
    if (this.#unrepeated.delete(id)) this.#happened(id);
  }

  /** These patches no longer count. */
  withdraw(ids: readonly string[]): void {
    for (const id of ids) {
      this.#unrepeated.delete(id);
      this.#withdrawn.add(id);
    }
    if (typeof this.#state === 'object')
      this.#state.ahead = this.#state.ahead.filter(({ id }) => !this.#withdrawn.has(id));
  }

  /** What to apply in place of this patch; undefined for the patch itself. */
  async fold(payload: Uint8Array, { hasLeftovers }: WrittenOutput): Promise<Uint8Array | undefined> {
    if (this.#state === 'undecided') {
      const isBehind = this.#ahead.size + this.#unrepeated.size + this.#withdrawn.size > 0;
      this.#state = isBehind || hasLeftovers ? await this.#begin() : 'plain';
    }
    if (typeof this.#state !== 'object') return undefined;
    return this.#towards(this.#state, payload);
  }

  #towards(state: Folding, payload: Uint8Array): Uint8Array | undefined {
    const patch = JSON.parse(new TextDecoder().decode(payload)) as JsonObject;
    state.done = applyPatch(state.done, patch);
    let target = state.done;
    for (const { patch: later } of state.ahead) target = applyPatch(target, later);
    const towards = new TextEncoder().encode(JSON.stringify(patchBetween(state.shown, target)));
    const isTooLarge = towards.length > LIMITS.frameBytes;
    state.shown = isTooLarge ? applyPatch(state.shown, patch) : target;
    if (state.ahead.length === 0 && !isTooLarge) this.#state = 'plain';
    return isTooLarge ? undefined : towards;
  }

  #happened(name: string): void {
    if (this.#state === 'undecided') this.#events.push(name);
    if (typeof this.#state === 'object') take(this.#state, name);
  }

  async #begin(): Promise<Folding | 'plain'> {
    const { document, patches } = await this.#read();
    if (patches === null) return 'plain';
    const ahead = patches.filter(({ id, source }) => source !== null || !this.#withdrawn.has(id));
    const state: Folding = { shown: document, done: {}, ahead };
    for (const name of this.#events) take(state, name);
    return state;
  }
}

/** Moves what the run has come past from one part to the other. */
function take(state: Folding, name: string): void {
  const isOf = ({ id, source }: WrittenPatch): boolean =>
    source === null ? id === name : sourceName(source) === name;
  for (const { patch } of state.ahead.filter(isOf)) state.done = applyPatch(state.done, patch);
  state.ahead = state.ahead.filter((one) => !isOf(one));
}

/**
 * A name for whoever wrote output that stays. Children have one name together: they wrote at the same time, and each
 * counted on from where the others were.
 */
export function sourceName(source: OutputSource): string {
  if ('child' in source) return JSON.stringify(['children']);
  return JSON.stringify(['step', source.step.name, source.step.key]);
}
