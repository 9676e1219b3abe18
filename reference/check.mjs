#!/usr/bin/env node
/**
 * Fails when an export of the package has no comment, or when a comment links to nothing. typedoc's own check also asks for comments on every
 * method and property, which would fill interfaces with sentences that repeat the name.
 */
import { fileURLToPath } from 'node:url';
import { Application, OptionDefaults, ReflectionKind, TSConfigReader, TypeDocReader } from 'typedoc';

const EXPLAINED =
  ReflectionKind.Function |
  ReflectionKind.Class |
  ReflectionKind.Interface |
  ReflectionKind.TypeAlias |
  ReflectionKind.Variable |
  ReflectionKind.Enum;

/** What this check decides itself, and what needs no comment because it is not exported. */
const UNASKED = { notExported: false, notDocumented: false, rewrittenLink: false };

process.chdir(fileURLToPath(new URL('.', import.meta.url)));
const app = await Application.bootstrapWithPlugins(
  { readme: 'none', validation: { ...OptionDefaults.validation, ...UNASKED } },
  [new TypeDocReader(), new TSConfigReader()],
);
const project = await app.convert();
if (project === undefined) process.exit(2);
app.validate(project);

const isExplained = (reflection) =>
  reflection.hasComment() || (reflection.signatures ?? []).some((signature) => signature.hasComment());

/** By subpath. What one subpath takes over from another is explained there. */
const missing = (project.children ?? []).flatMap((entry) =>
  (entry.children ?? [])
    .filter((reflection) => reflection.kindOf(EXPLAINED) && !isExplained(reflection))
    .map(({ name }) => `${entry.name}: ${name}`),
);
for (const name of missing) console.error(name);
console.log(`${missing.length} exports without a comment, ${app.logger.warningCount} other faults.`);
process.exitCode = missing.length + app.logger.warningCount === 0 ? 0 : 1;
