/**
 * Planted violations of the rules about what documents refer to, beside references that come close and are right.
 */
import { docAnchors, docPaths } from './documents.ts';
import { plant, type Plant } from './plant.ts';

export const planted: readonly Plant[] = [
  plant(
    docAnchors,
    {
      'README.md': [
        '# The top: `a` & b',
        '[a](#the-top-a--b) [b](#nowhere) [c](docs/a.md#part-one) [d](docs/a.md#part-two)',
        '[e](https://example.org/#nowhere) [f](docs/a.md) [g](src/a.ts#L3)',
      ].join('\n'),
      'docs/a.md': '## Part one\n```md\n## Part two\n```\n[up](../README.md#missing)',
    },
    ['README.md:2', 'README.md:2', 'docs/a.md:5'],
  ),
  plant(
    docPaths,
    {
      'docs/a.md': [
        '`src/engine/open.ts` is there, `src/engine/gone.ts` is not',
        '`src/engine/` is there, `sql/nowhere/` is not',
        '`src/engine/*.ts`, `engine/gone.ts` and src/gone.ts name no single file of the repository',
      ].join('\n'),
      'src/engine/open.ts': '// `src/engine/gone.ts`',
    },
    ['docs/a.md:1', 'docs/a.md:2'],
  ),
];
