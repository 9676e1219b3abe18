/**
 * `flowfabric steps`: the steps of one execution in the order they were recorded, with what they returned.
 */
import { AN_ID, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { stepTable } from '../drawing/steps.ts';
import { EXIT } from '../exit-codes.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, noExecution } from '../short-ids.ts';
import type { Line } from '../style.ts';

export const steps: CommandSpec = {
  name: 'steps',
  summary: 'list the steps of an execution',
  description:
    'List the steps of an execution in the order they were recorded: how long each took and\nwhat it returned. Values are cut to the terminal; --json has them whole.',
  arguments: [ID_ARGUMENT],
  examples: [`flowfabric steps ${AN_ID}`, `flowfabric steps ${AN_ID} --json | jq .value`],
  action: run,
};

const NONE: Line[] = [[['No steps yet. A step appears here when it has finished.', 'dim']]];

async function run(session: Session, _: object, given: string): Promise<number> {
  checkId(given);
  const { printer } = session;
  const found = await withEngine(session, { listen: 'off' }, async (engine) => {
    const id = await executionIdOf(engine, session, given);
    const listed = await engine.executions.listSteps(id);
    if (listed.length === 0 && (await engine.executions.describe(id)) === null)
      throw await noExecution(engine, given);
    return listed;
  });
  printer.list(found, found.length === 0 ? NONE : stepTable(found, printer.columns));
  return EXIT.ok;
}
