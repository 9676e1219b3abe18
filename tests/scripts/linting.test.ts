/**
 * The checks of copies and of spelling can fail: each finds what is planted, and leaves alone what comes close.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** The exit code and all output of a program that runs here. */
function run(program: string, ...args: string[]): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [join(ROOT, program), ...args], { cwd: ROOT }, (error, stdout, stderr) =>
      resolve({ code: Number(error?.code ?? 0), output: stdout + stderr }),
    );
  });
}

async function plant(files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'flowfabric-planted-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  return folder;
}

function functionNamed(name: string, limit: string): string {
  const lines = [
    `export function ${name}(values: readonly number[], scale: number): number[] {`,
    '  const kept = values.filter((value) => Number.isFinite(value) && value >= 0);',
    '  const total = kept.map((value) => value * scale).toSorted((a, b) => a - b);',
    `  if (total.length > ${limit}) throw new RangeError('too many values to be ranked');`,
    '  return total.map((value, index) => value / (index + 1)).filter((value) => value < scale);',
    '}',
  ];
  return `${lines.join('\n')}\n`;
}

it('a function that is copied fails the check of copies, which names both places', async () => {
  const copied = await plant({ 'a.ts': functionNamed('rank', '100'), 'b.ts': functionNamed('rank', '100') });
  const { code, output } = await run('scripts/duplicates.mjs', copied);
  expect(code).toBe(1);
  expect(output).toMatch(/1 copies in typescript, 0 allowed:\n.*a\.ts:1-\d+ = .*b\.ts:1-\d+/);
});

it('two functions that are alike in a few lines pass it', async () => {
  const alike = await plant({
    'a.ts': "export const a = (text: string) => text.split('\\n').map((line) => line.trim());\n",
    'b.ts': "export const b = (text: string) => text.split('\\n').map((line) => line.trim());\n",
  });
  expect(await run('scripts/duplicates.mjs', alike)).toMatchObject({ code: 0 });
});

it('a misspelt word in a comment or in prose fails the check of spelling, and code does not', async () => {
  const misspelt = ['recie', 've'].join('');
  const folder = await plant({
    'src/a.ts': `/** Will ${misspelt} it. */\nexport const qwrtzy = 1; // and ${misspelt} again\n`,
    'docs/a.md': `They ${misspelt} it.\n\n\`\`\`ts\nconst qwrtzy = 1;\n\`\`\`\n`,
  });
  const config = ['--config', join(ROOT, 'cspell.json'), '--root', folder, '--no-progress', '**/*'];
  const { code, output } = await run('node_modules/cspell/bin.mjs', 'lint', ...config);
  expect(code).toBe(1);
  expect(output.match(/Unknown word/g)).toHaveLength(3);
  expect(output).not.toContain('qwrtzy)');
});
