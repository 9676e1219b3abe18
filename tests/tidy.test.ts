/**
 * Style as a test: every house rule that a program can check. Each rule is run over the working tree and, so that none
 * passes because it sees nothing, over planted files that break it and files that come close without breaking it.
 */
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { oneAnnouncer } from './tidy/announcing.ts';
import { planted as announcingPlants } from './tidy/announcing.planted.ts';
import { databaseClock, importDirection, plainStatements, pureImports, pureModel } from './tidy/imports.ts';
import { planted as importPlants } from './tidy/imports.planted.ts';
import { fileHeader, fileLength, fileNames, functionLength, sqlFunctionLength } from './tidy/sizes.ts';
import { planted as sizePlants } from './tidy/sizes.planted.ts';
import { oneWriterOfState, sqlInStore } from './tidy/sql.ts';
import { planted as sqlPlants } from './tidy/sql.planted.ts';
import { readTree, report, type Check, type SourceFile } from './tidy/tree.ts';
import {
  docLinks,
  lockFile,
  noLeftovers,
  noMachinePaths,
  noSkippedTests,
  noSleep,
  noTickets,
  patientLimits,
} from './tidy/words.ts';
import { planted as wordPlants } from './tidy/words.planted.ts';
import { docAnchors, docPaths } from './tidy/documents.ts';
import { planted as documentPlants } from './tidy/documents.planted.ts';

const CHECKS: readonly Check[] = [
  importDirection,
  plainStatements,
  pureImports,
  pureModel,
  databaseClock,
  sqlInStore,
  oneWriterOfState,
  oneAnnouncer,
  fileLength,
  functionLength,
  sqlFunctionLength,
  fileNames,
  fileHeader,
  noTickets,
  noLeftovers,
  noMachinePaths,
  noSkippedTests,
  noSleep,
  patientLimits,
  lockFile,
  docLinks,
  docAnchors,
  docPaths,
];

const PLANTS = [
  ...importPlants,
  ...sqlPlants,
  ...announcingPlants,
  ...sizePlants,
  ...wordPlants,
  ...documentPlants,
];
const tree = readTree(fileURLToPath(new URL('..', import.meta.url)));

function locations(check: Check, files: readonly SourceFile[]): string[] {
  return check.find(files).map(({ path, line }) => `${path}:${line}`);
}

describe('the working tree', () => {
  it('is found', () => {
    expect(tree.map(({ path }) => path)).toEqual(
      expect.arrayContaining([
        'package.json',
        'package-lock.json',
        'src/contract/errors.ts',
        'tests/tidy.test.ts',
      ]),
    );
  });

  for (const check of CHECKS) {
    it(check.name, () => expect(report(check.find(tree))).toBe(''));
  }
});

describe('each rule', () => {
  it('has planted violations', () => {
    expect(CHECKS.filter((check) => !PLANTS.some((plant) => plant.check === check))).toEqual([]);
  });

  for (const { check, files, caught } of PLANTS) {
    it(`finds what breaks it, and nothing else: ${check.name}`, () => {
      expect(locations(check, files)).toEqual(caught);
    });
  }
});
