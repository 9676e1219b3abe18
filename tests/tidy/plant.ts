/**
 * The shape of a planted example: files in memory, and the places where a check must report them. The examples
 * themselves are beside the checks they belong to.
 */
import type { Check, SourceFile } from './tree.ts';

export interface Plant {
  check: Check;
  files: readonly SourceFile[];
  /** `path:line` of every finding, in the order of the files. */
  caught: readonly string[];
}

export function plant(check: Check, files: Record<string, string>, caught: readonly string[]): Plant {
  return { check, files: Object.entries(files).map(([path, text]) => ({ path, text })), caught };
}
