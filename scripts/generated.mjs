/**
 * What scripts that maintain a generated file share: `--write` regenerates it, and `--check` fails when it is out of
 * date and prints the first lines that differ.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const DIFFERENCES_SHOWN_MAX = 40;
const ROOT = new URL('../', import.meta.url);

/** The first lines that differ, for people to read. */
function describeDrift(expected, actual) {
  const before = new Set(expected.split('\n'));
  const after = new Set(actual.split('\n'));
  const gone = [...before].filter((line) => !after.has(line)).map((line) => `- ${line}`);
  const added = [...after].filter((line) => !before.has(line)).map((line) => `+ ${line}`);
  return (
    [...gone, ...added].slice(0, DIFFERENCES_SHOWN_MAX).join('\n') || '(only the order of lines differs)'
  );
}

/**
 * Runs the command and returns the exit code of the process.
 *
 * @param {string | undefined} command `--write` or `--check`
 * @param {{ path: string, renewedBy: string, make: () => string | Promise<string> }} file its path from the root of the repository, the command that renews it, and its text
 */
export async function keepGenerated(command, { path, renewedBy, make }) {
  if (command !== '--write' && command !== '--check') {
    console.error('usage: --write | --check');
    return 2;
  }
  const place = fileURLToPath(new URL(path, ROOT));
  const actual = await make();
  if (command === '--write') {
    await writeFile(place, actual);
    return 0;
  }
  const expected = await readFile(place, 'utf8').catch(() => '');
  if (expected === actual) return 0;
  console.error(`${path} is out of date; run \`${renewedBy}\`.\n${describeDrift(expected, actual)}`);
  return 1;
}
