/**
 * A vitest reporter that ends the output with one plain line, `N passed, N failed`, for programs that read it.
 * A file that could not be loaded and an error outside every test count as one failure each, so that a run
 * without a failed test but with something broken never reads as clean.
 */

/** @implements {import('vitest/reporters').Reporter} */
export default class CountReporter {
  #line = '0 passed, 1 failed';

  constructor() {
    // Printed last, after every other reporter and every teardown.
    process.once('exit', () => process.stdout.write(`${this.#line}\n`));
  }

  /**
   * @param {ReadonlyArray<import('vitest/node').TestModule>} modules
   * @param {ReadonlyArray<unknown>} errors
   */
  onTestRunEnd(modules, errors) {
    const counts = { passed: 0, failed: errors.length, skipped: 0 };
    for (const module of modules) {
      counts.failed += module.errors().length;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed' || state === 'failed') counts[state] += 1;
        else counts.skipped += 1;
      }
    }
    const skipped = counts.skipped === 0 ? '' : `, ${counts.skipped} skipped`;
    this.#line = `${counts.passed} passed, ${counts.failed} failed${skipped}`;
  }
}
