/**
 * How long a test waits before it counts as hanging. No limit of a test says anything about speed: each is there so that a hanging
 * test ends, and all of them stretch by one factor, because a busy machine is slow and not wrong.
 */

/** `FLOWFABRIC_TEST_PATIENCE` multiplies every limit; a server that runs the checks beside other work sets CI and gets three. */
const FACTOR = Number(process.env['FLOWFABRIC_TEST_PATIENCE'] ?? (process.env['CI'] === 'true' ? 3 : 1));
if (!(FACTOR > 0)) throw new Error('FLOWFABRIC_TEST_PATIENCE must be a number above zero.');

/** The limit for something that takes less than `ms` on an idle machine. */
export function patiently(ms: number): number {
  return Math.ceil(ms * FACTOR);
}
