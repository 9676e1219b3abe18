/**
 * How many columns of a terminal a text takes, and how it is made to fit: cut with an ellipsis, or folded at spaces. Pure
 * text from text.
 */

/** Take no column of their own: combining marks, joiners, variation selectors. */
const NARROW = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
/** Take two columns: East Asian wide characters, and emoji. */
const WIDE =
  /^(?:\p{Emoji_Presentation}|[\u1100-\u115F\u2E80-\u303E\u3041-\u33FF\u3400-\u4DBF\u4E00-\u9FFF\uA000-\uA4CF\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF00-\uFF60\uFFE0-\uFFE6\u{20000}-\u{3FFFD}])$/u;
const ASCII = /^[\x20-\x7e]*$/;

const ELLIPSIS = '…';

export function widthOf(text: string): number {
  if (ASCII.test(text)) return text.length;
  return [...text].reduce((sum, character) => sum + columnsOf(character), 0);
}

function columnsOf(character: string): number {
  if (NARROW.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

/** The text itself if it fits into so many columns; otherwise its beginning and an ellipsis. */
export function cutTo(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  if (columns < 1) return '';
  let [kept, room] = ['', columns - 1];
  for (const character of text) {
    room -= columnsOf(character);
    if (room < 0) break;
    kept += character;
  }
  return `${kept.trimEnd()}${ELLIPSIS}`;
}

/** The text on lines of at most so many columns, broken at spaces; a longer word has a line of its own. */
export function fold(text: string, columns: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (line !== '' && widthOf(longer) > columns) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  return [...lines, line];
}
