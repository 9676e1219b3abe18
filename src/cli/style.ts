/**
 * Lines of text with tones, and how they are written: in colour on a terminal that wants it, as plain text everywhere
 * else. What the lines say is decided elsewhere.
 */
import type { WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import { withoutControls } from '../contract/secrets.ts';

export type Tone = 'plain' | 'strong' | 'dim' | 'good' | 'bad' | 'warn';
export type Span = readonly [text: string, tone?: Tone];
export type Line = readonly Span[];

export interface Style {
  colour: 'on' | 'off';
  /** `ascii` where the locale has no other characters. */
  characters: 'unicode' | 'ascii';
}

export type Output = Pick<WriteStream, 'write'> & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

const FORMATS = {
  strong: 'bold',
  dim: 'dim',
  good: 'green',
  bad: 'red',
  warn: 'yellow',
} as const satisfies Record<Exclude<Tone, 'plain'>, string>;

export function styleFor(output: Output, env: NodeJS.ProcessEnv): Style {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  const hasUnicode = /utf-?8/i.test(locale) || ['darwin', 'win32'].includes(process.platform);
  const isPlain = output.isTTY !== true || Boolean(env['NO_COLOR']) || env['TERM'] === 'dumb';
  return { colour: isPlain ? 'off' : 'on', characters: hasUnicode ? 'unicode' : 'ascii' };
}

/** A terminal that does not tell its width. */
const DEFAULT_COLUMNS = 80;

/** The width of the terminal that is written to; null when it is none. */
export function columnsOf({ isTTY, columns }: Output): number | null {
  return isTTY === true ? columns || DEFAULT_COLUMNS : null;
}

export function paint(line: Line, style: Style): string {
  return line
    .map(([given, tone = 'plain']) => {
      const text = withoutControls(given);
      if (style.colour === 'off' || tone === 'plain' || text === '') return text;
      // Whether colours are wanted was decided above, for this output: stdout must not be asked again.
      return styleText(FORMATS[tone], text, { validateStream: false });
    })
    .join('');
}
