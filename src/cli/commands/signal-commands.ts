/**
 * The commands about waiting to be told: `approvals`, `approve`, `signal`, `token` and `keys`, as program.ts lists them. Each is one call
 * into a file of its own; no work is done here.
 */
import type { Command } from 'commander';
import { approvalsCommand, describeApprovals, type ApprovalsOptions } from './approvals.ts';
import {
  describeKeys,
  describeRotate,
  keysCommand,
  revokeCommand,
  rotateCommand,
  type RotateOptions,
} from './keys.ts';
import { AN_ID, examples, run, type OnExit } from '../registering.ts';
import {
  approveCommand,
  describeApprove,
  describeSignal,
  signalCommand,
  type ApproveOptions,
  type SignalOptions,
} from './signal.ts';
import { describeToken, tokenCommand, type TokenOptions } from './token.ts';

/** In the order of the help. */
export const SIGNAL_COMMANDS = [addApprovals, addApprove, addSignal, addToken, addKeys];

function addApprovals(program: Command, onExit: OnExit): void {
  describeApprovals(program.command('approvals'))
    .addHelpText('after', examples('flowfabric approvals', `flowfabric approvals ${AN_ID}`))
    .action((id: string | undefined, options: ApprovalsOptions, command: Command) =>
      run(command, onExit, (session) => approvalsCommand(id, options, session)),
    );
}

function addApprove(program: Command, onExit: OnExit): void {
  describeApprove(program.command('approve'))
    .addHelpText(
      'after',
      examples(
        `flowfabric approve ${AN_ID} manager --by ada`,
        `flowfabric approve ${AN_ID} manager --name rejected --payload '{"why":"too dear"}'`,
      ),
    )
    .action((id: string, waitpoint: string, options: ApproveOptions, command: Command) =>
      run(command, onExit, (session) => approveCommand(id, waitpoint, options, session)),
    );
}

function addSignal(program: Command, onExit: OnExit): void {
  describeSignal(program.command('signal'))
    .addHelpText(
      'after',
      examples(
        'flowfabric signal - --name paid --source service:billing < token.txt',
        `flowfabric token ${AN_ID} parcel | flowfabric signal - --payload @scan.json`,
      ),
    )
    .action((token: string, options: SignalOptions, command: Command) =>
      run(command, onExit, (session) => signalCommand(token, options, session)),
    );
}

function addToken(program: Command, onExit: OnExit): void {
  describeToken(program.command('token'))
    .addHelpText(
      'after',
      examples(
        `flowfabric token ${AN_ID} manager --for user:ada --expires 2d --once`,
        `flowfabric token ${AN_ID} manager --says approved --link https://example.org/answer`,
      ),
    )
    .action((id: string, waitpoint: string, options: TokenOptions, command: Command) =>
      run(command, onExit, (session) => tokenCommand(id, waitpoint, options, session)),
    );
}

function addKeys(program: Command, onExit: OnExit): void {
  const keys = describeKeys(program.command('keys')).addHelpText(
    'after',
    examples('flowfabric keys list', 'flowfabric keys rotate --grace 2d'),
  );
  keys
    .command('list', { isDefault: true })
    .description('List the keys.')
    .addHelpText('after', examples('flowfabric keys list', 'flowfabric keys list --json'))
    .action((_options: object, command: Command) => run(command, onExit, (session) => keysCommand(session)));
  describeRotate(keys.command('rotate'))
    .addHelpText('after', examples('flowfabric keys rotate', 'flowfabric keys rotate --grace 0'))
    .action((options: RotateOptions, command: Command) =>
      run(command, onExit, (session) => rotateCommand(options, session)),
    );
  keys
    .command('revoke')
    .description('End a key at once. The one that signs cannot be: rotate with --grace 0 instead.')
    .argument('<key>', 'its name, as `flowfabric keys list` has it')
    .addHelpText('after', examples('flowfabric keys revoke 4f2a91c0'))
    .action((kid: string, _options: object, command: Command) =>
      run(command, onExit, (session) => revokeCommand(kid, session)),
    );
}
