/**
 * Lines of text with tones, and what becomes of them: colours on a terminal that wants them, plain text everywhere
 * else. What is said is decided elsewhere.
 */
import type { WriteStream } from 'node:tty';
import { withoutControls } from './secrets.ts';

export type Tone = 'plain' | 'strong' | 'dim' | 'good' | 'bad' | 'warn';
export type Span = readonly [text: string, tone?: Tone];
export type Line = readonly Span[];

export interface Look {
  colour: 'on' | 'off';
  /** `ascii` where the locale has no other characters. */
  characters: 'unicode' | 'ascii';
}

export type Output = Pick<WriteStream, 'write'> & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

const CODES: Record<Exclude<Tone, 'plain'>, string> = {
  strong: '1',
  dim: '2',
  good: '32',
  bad: '31',
  warn: '33',
};

export function lookFor(output: Output, env: NodeJS.ProcessEnv): Look {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  const hasUnicode = /utf-?8/i.test(locale) || ['darwin', 'win32'].includes(process.platform);
  const isPlain = output.isTTY !== true || Boolean(env['NO_COLOR']) || env['TERM'] === 'dumb';
  return { colour: isPlain ? 'off' : 'on', characters: hasUnicode ? 'unicode' : 'ascii' };
}

export function paint(line: Line, look: Look): string {
  return line
    .map(([given, tone = 'plain']) => {
      const text = withoutControls(given);
      if (look.colour === 'off' || tone === 'plain' || text === '') return text;
      return `\u001B[${CODES[tone]}m${text}\u001B[0m`;
    })
    .join('');
}
