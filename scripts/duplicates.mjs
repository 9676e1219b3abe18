#!/usr/bin/env node
/**
 * Fails when code is copied. jscpd finds the copies; what is allowed is counted for each language, because a share of all lines would
 * let whole functions be copied into a large tree. Takes folders to look at; by default everything that is published or builds it.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const FOLDERS = ['src', 'scripts', 'sql/functions'];
/** Shorter copies are how things look that are alike: a list of the same columns, a call with the same names. */
const SHORTEST = { tokens: 60, lines: 5 };
/** Two files that use the same things are no copies of each other. */
const IMPORTS = 'import\\s[^;]*;';
/**
 * How many copies there may be. TypeScript has none. plpgsql cannot share a list of columns between two functions or a query between
 * two statements without another function call for each row. The two generators in scripts report drift alike.
 */
const BUDGET = { typescript: 0, javascript: 2, sql: 10 };

function findCopies(folders) {
  const report = mkdtempSync(join(tmpdir(), 'flowfabric-duplicates-'));
  const program = fileURLToPath(import.meta.resolve('jscpd/run-jscpd.js'));
  const args = [
    '--min-tokens',
    SHORTEST.tokens,
    '--min-lines',
    SHORTEST.lines,
    '--ignore',
    '**/*.test.ts',
    '--ignore-pattern',
    IMPORTS,
  ];
  try {
    const options = ['--reporters', 'json', '--output', report, '--silent', ...folders];
    execFileSync(process.execPath, [program, ...args.map(String), ...options], { stdio: 'ignore' });
    return JSON.parse(readFileSync(join(report, 'jscpd-report.json'), 'utf8')).duplicates;
  } finally {
    rmSync(report, { recursive: true, force: true });
  }
}

const placeOf = ({ name, start, end }) => `${name}:${start}-${end}`;

const given = process.argv.slice(2);
const copies = findCopies(given.length === 0 ? FOLDERS : given);
for (const [format, allowed] of Object.entries(BUDGET)) {
  const found = copies.filter((copy) => copy.format === format);
  if (found.length <= allowed) continue;
  console.error(`${found.length} copies in ${format}, ${allowed} allowed:`);
  for (const { firstFile, secondFile, lines } of found)
    console.error(`  ${placeOf(firstFile)} = ${placeOf(secondFile)} (${lines} lines)`);
  process.exitCode = 1;
}
