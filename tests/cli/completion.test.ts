/**
 * `flowfabric completion`: the script for bash is loaded by bash and asked what may follow; those for the other shells
 * are made from the same tree.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { runCommand } from './processes.ts';

const bash = promisify(execFile);

async function script(shell: string): Promise<string> {
  const { exitCode, output, errors } = await runCommand({ args: ['completion', shell] });
  expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
  return output;
}

/** What bash offers after these words, the last of which is being typed. */
async function offered(...words: string[]): Promise<string[]> {
  const ask = `${await script('bash')}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flowfabric; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = await bash('bash', ['-c', ask, 'bash', 'flowfabric', ...words]);
  expect(stderr).toBe('');
  return stdout.split('\n').filter((line) => line !== '');
}

describe('in bash', () => {
  it.each([
    [['la'], ['lanes']],
    [['appr'], ['approvals', 'approve']],
    [
      ['lanes', ''],
      ['list', 'pause', 'resume', 'set-events', 'help'],
    ],
    [['lanes', 'pause', '--r'], ['--reason']],
    [['list', '--state', 'co'], ['completed']],
    [['cancel', '--lane', 'mail', '--state', 'act'], ['active']],
    [['why', '--al'], ['--all']],
    [
      ['replay', '--from', ''],
      ['failed_step', 'start'],
    ],
    [['events', 'tail', '--family', 'f'], ['flow']],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['--schema', 'lanes', 'work'], ['workers']],
    [
      ['flows', 'cancel', '--policy', 'cancel_'],
      ['cancel_all', 'cancel_pending'],
    ],
    [['list', '--lane', ''], []],
    [['demo-'], []],
  ])('%j is completed', async (words, expected) => {
    expect(await offered(...words)).toEqual(expected);
  });

  it('every command and option of the help is offered', async () => {
    const { output } = await runCommand({ args: ['--help'] });
    const names = [...output.matchAll(/^ {2}([a-z][a-z|-]*) {2,}/gm)].flatMap(([, name]) => name!.split('|'));
    expect((await offered('')).toSorted()).toEqual(names.toSorted());
    expect(await offered('--')).toEqual(['--url', '--schema', '--json', '--no-color', '--version', '--help']);
  });
});

describe('in other shells', () => {
  it('zsh is told commands, options and choices with their help', async () => {
    const text = await script('zsh');
    expect(text).toMatch(/^#compdef flowfabric\n/);
    expect(text).toContain(`'pause:stop giving out work of a lane'`);
    expect(text).toContain(`'--reason:why'`);
    expect(text).toMatch(/'replay --from'\) compadd -- failed_step start/);
  });

  it('fish is told commands, options and choices with their help', async () => {
    const text = await script('fish');
    expect(text).toContain(`"__flowfabric_at 'lanes'" -a pause -d 'stop giving out work of a lane'`);
    expect(text).toContain(`"__flowfabric_at 'lanes pause'" -l reason -r -F -d 'why'`);
    expect(text).toContain(`"__flowfabric_at 'replay'" -l from -x -a 'failed_step start'`);
  });
});
