/**
 * A small lexer for TypeScript and SQL source: it separates code, comments and literals, and keeps every position and
 * line number. It has no grammar; that is enough for the checks, which search for words and matching braces. Nothing
 * here reads a file or decides what is allowed.
 */

export interface Piece {
  /** Contents without the delimiters; a template keeps its `${…}` parts as written. */
  text: string;
  line: number;
  /** Offset of the opening delimiter in the file. */
  start: number;
}

export interface Lexed {
  /** The source with comments and the inside of literals replaced by spaces; the same length and lines. */
  code: string;
  /** The source with only the comments replaced by spaces. */
  uncommented: string;
  comments: Piece[];
  literals: Piece[];
}

const REGEX_AFTER_WORD =
  /(?:^|[^\w$.])(?:return|typeof|case|in|of|delete|void|throw|new|else|do|await|yield|instanceof)$/;
const REGEX_AFTER_CHAR = '(,=:[!&|?{;+-*%<>~^';

export function blank(text: string): string {
  return text.replaceAll(/[^\n]/g, ' ');
}

export function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length;
}

/** Splits TypeScript or JavaScript source into code, comments and literals. */
export function lexTypeScript(text: string): Lexed {
  const scanner = new TypeScriptScanner(text);
  scanner.run();
  return scanner.result();
}

class TypeScriptScanner {
  readonly #text: string;
  readonly #comments: Piece[] = [];
  readonly #literals: Piece[] = [];
  /**
   * One entry for each template whose `${` is open: where the template started, and how many braces are open inside.
   */
  readonly #templates: { start: number; braces: number }[] = [];
  #code = '';
  #uncommented = '';

  constructor(text: string) {
    this.#text = text;
  }

  result(): Lexed {
    return {
      code: this.#code,
      uncommented: this.#uncommented,
      comments: this.#comments,
      literals: this.#literals,
    };
  }

  run(): void {
    if (this.#text.startsWith('#!')) this.#takeComment(this.#lineEnd(0), 0);
    while (this.#code.length < this.#text.length) this.#step(this.#code.length);
  }

  #step(at: number): void {
    const char = this.#text.charAt(at);
    if (this.#text.startsWith('//', at)) return this.#takeComment(this.#lineEnd(at), 2);
    if (this.#text.startsWith('/*', at)) return this.#takeComment(this.#after('*/', at + 2), 2);
    if (char === "'" || char === '"') return this.#takeLiteral(this.#stringEnd(at));
    if (char === '/' && this.#regexAllowed()) return this.#takeLiteral(this.#regexEnd(at));
    if (char === '`') return this.#takeTemplate(at, at);
    const template = this.#templates.at(-1);
    if (template !== undefined && char === '}' && template.braces === 0) {
      this.#templates.pop();
      return this.#takeTemplate(template.start, at);
    }
    if (template !== undefined && char === '{') template.braces += 1;
    if (template !== undefined && char === '}') template.braces -= 1;
    this.#emit(char, char);
  }

  #emit(code: string, uncommented: string): void {
    this.#code += code;
    this.#uncommented += uncommented;
  }

  #takeComment(end: number, delimiter: number): void {
    const start = this.#code.length;
    const raw = this.#text.slice(start, end);
    this.#comments.push({ text: raw.slice(delimiter), line: lineAt(this.#text, start), start });
    this.#emit(blank(raw), blank(raw));
  }

  #takeLiteral(end: number): void {
    const start = this.#code.length;
    const raw = this.#text.slice(start, end);
    this.#literals.push({ text: raw.slice(1, -1), line: lineAt(this.#text, start), start });
    this.#emit(`"${blank(raw.slice(1, -1))}"`, raw);
  }

  /** Consumes template text from `at` (a backtick, or the brace that closes an expression) to its next stop. */
  #takeTemplate(start: number, at: number): void {
    let end = at + 1;
    while (end < this.#text.length && this.#text[end] !== '`' && !this.#text.startsWith('${', end)) {
      end += this.#text[end] === '\\' ? 2 : 1;
    }
    const opensExpression = this.#text.startsWith('${', end);
    if (opensExpression) this.#templates.push({ start, braces: 0 });
    else
      this.#literals.push({ text: this.#text.slice(start + 1, end), line: lineAt(this.#text, start), start });
    const raw = this.#text.slice(at, end + (opensExpression ? 2 : 1));
    const first = start === at ? '`' : ' ';
    const last = opensExpression ? '  ' : '`';
    this.#emit((first + blank(raw.slice(1, raw.length - last.length)) + last).slice(0, raw.length), raw);
  }

  #regexAllowed(): boolean {
    const before = this.#code.trimEnd();
    return (
      before === '' ||
      REGEX_AFTER_CHAR.includes(before.charAt(before.length - 1)) ||
      REGEX_AFTER_WORD.test(before.slice(-20))
    );
  }

  #lineEnd(from: number): number {
    const end = this.#text.indexOf('\n', from);
    return end === -1 ? this.#text.length : end;
  }

  #after(mark: string, from: number): number {
    const found = this.#text.indexOf(mark, from);
    return found === -1 ? this.#text.length : found + mark.length;
  }

  #stringEnd(start: number): number {
    const quote = this.#text.charAt(start);
    let end = start + 1;
    while (end < this.#text.length && this.#text[end] !== quote && this.#text[end] !== '\n') {
      end += this.#text[end] === '\\' ? 2 : 1;
    }
    return Math.min(end + 1, this.#text.length);
  }

  #regexEnd(start: number): number {
    let end = start + 1;
    let inClass = false;
    while (end < this.#text.length && this.#text[end] !== '\n' && (inClass || this.#text[end] !== '/')) {
      if (this.#text[end] === '[') inClass = true;
      if (this.#text[end] === ']') inClass = false;
      end += this.#text[end] === '\\' ? 2 : 1;
    }
    return Math.min(end + 1, this.#text.length);
  }
}

const SQL_PIECE = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'/g;

/** Splits SQL source; a dollar-quoted body counts as code. */
export function lexSql(text: string): Lexed {
  const comments: Piece[] = [];
  const literals: Piece[] = [];
  const uncommented = text.replaceAll(SQL_PIECE, (raw: string, start: number) => {
    const line = lineAt(text, start);
    if (raw.startsWith("'")) {
      literals.push({ text: raw.slice(1, -1), line, start });
      return raw;
    }
    comments.push({ text: raw.slice(2), line, start });
    return blank(raw);
  });
  const code = uncommented.replaceAll(/'(?:[^']|'')*'/g, (raw) => `'${blank(raw.slice(1, -1))}'`);
  return { code, uncommented, comments, literals };
}
