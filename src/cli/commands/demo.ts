/**
 * `flowfabric demo`: the command in front of src/cli/demo. It checks the options and starts the demonstration, which
 * handles interruptions itself: its workers and its server must be stopped first.
 */
import type { CommandSpec } from '../command.ts';
import { DEMO_EXECUTIONS, runDemo } from '../demo/demo.ts';
import { UsageError } from '../exit-codes.ts';
import { parseWhole } from '../input.ts';
import { databaseUrlOf, environmentFor, type GlobalOptions } from '../session.ts';

export const demo: CommandSpec = {
  name: 'demo',
  summary: 'watch workers survive a crash',
  description:
    'Start three worker processes, kill one of them, and lose nothing. Starts its\n' +
    'own Postgres unless --url or DATABASE_URL names one.',
  options: [
    [
      '--executions <n>',
      `how many, ${DEMO_EXECUTIONS.min} to ${DEMO_EXECUTIONS.max}`,
      { default: String(DEMO_EXECUTIONS.default) },
    ],
  ],
  refused: ['--schema', '--json'],
  examples: ['flowfabric demo --executions 200'],
  standalone: start,
};

async function start(globals: GlobalOptions, options: { executions: string }): Promise<number> {
  const executions = parseWhole(options.executions, '--executions', DEMO_EXECUTIONS);
  if (globals.schema !== undefined) throw new UsageError('demo uses its own schema: omit --schema.');
  if (globals.json) throw new UsageError('demo does not print JSON: omit --json.');
  return runDemo({ executions, databaseUrl: databaseUrlOf(globals), env: environmentFor(globals) });
}
