/**
 * How the API reference is made: everything the package exports, by subpath, from the sources its exports are built from. What must have
 * a comment is decided in check.mjs.
 */
import { readFileSync } from 'node:fs';

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

/** `./dist/a/index.d.ts` is built from `../src/a/index.ts`. */
const sourceOf = ({ types }) => types.replace('./dist/', '../src/').replace(/\.d\.ts$/, '.ts');

/** @type {Partial<import('typedoc').TypeDocOptions>} */
export default {
  entryPoints: Object.values(manifest.exports)
    .filter((entry) => typeof entry === 'object')
    .map(sourceOf),
  tsconfig: './tsconfig.json',
  out: './dist',
  name: 'FlowFabric',
  readme: '../README.md',
  includeVersion: true,
  excludeInternal: true,
  excludePrivate: true,
  disableSources: true,
  validation: { notExported: false, invalidLink: true, rewrittenLink: false },
};
