/**
 * What TypeScript may import from release-check.mjs.
 */

/** Everything a release is judged by. */
export interface ReleaseState {
  /** What `git status --porcelain` prints. */
  status: string;
  tags: readonly string[];
  version: string;
  changelog: string;
  /** The text of package-lock.json. */
  lock: string;
  /** Paths of what would be packed. */
  files: readonly string[];
  /** Commands that failed. */
  failed: readonly string[];
}

export function findFaults(state: ReleaseState): string[];
