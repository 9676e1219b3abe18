/**
 * The commands about flows: `flow`, `flows` and `cancel-flow`, as program.ts lists them. Each is one call into flow.ts; no work is done
 * here.
 */
import type { Command } from 'commander';
import {
  cancelFlowCommand,
  describeCancelFlow,
  describeFlow,
  describeFlows,
  flowCommand,
  flowsCommand,
  type CancelFlowOptions,
  type FlowOptions,
  type FlowsOptions,
} from './flow.ts';
import { AN_ID, examples, run, type OnExit } from '../registering.ts';

/** In the order of the help. */
export const FLOW_COMMANDS = [addFlow, addFlows, addCancelFlow];

function addFlow(program: Command, onExit: OnExit): void {
  describeFlow(program.command('flow'))
    .addHelpText(
      'after',
      examples(`flowfabric flow ${AN_ID}`, `flowfabric flow ${AN_ID} --dot | dot -Tsvg > flow.svg`),
    )
    .action((id: string, options: FlowOptions, command: Command) =>
      run(command, onExit, (session) => flowCommand(id, options, session)),
    );
}

function addFlows(program: Command, onExit: OnExit): void {
  describeFlows(program.command('flows'))
    .addHelpText('after', examples('flowfabric flows', 'flowfabric flows --state failed --name nightly'))
    .action((options: FlowsOptions, command: Command) =>
      run(command, onExit, (session) => flowsCommand(options, session)),
    );
}

function addCancelFlow(program: Command, onExit: OnExit): void {
  describeCancelFlow(program.command('cancel-flow'))
    .addHelpText(
      'after',
      examples(
        `flowfabric cancel-flow ${AN_ID} --reason 'wrong input'`,
        `flowfabric cancel-flow ${AN_ID} --reason 'wrong input' --policy cancel_pending --wait`,
      ),
    )
    .action((id: string, options: CancelFlowOptions, command: Command) =>
      run(command, onExit, (session) => cancelFlowCommand(id, options, session)),
    );
}
