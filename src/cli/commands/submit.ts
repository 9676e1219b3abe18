/**
 * `flowfabric submit`: submits one execution and, with --wait, waits until it has finished. Prints the id, or the result
 * when it waited, and nothing else on stdout, so that a script can use the output as it is.
 */
import type { Connection } from '../../connect/connection.ts';
import type { ExecutionEnd, IfExists, SubmitRequest, SubmitResult } from '../../contract/executions.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseDuration, parseTags, parseWhole, readInput } from '../input.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { shortIds, type Shorten } from '../short-ids.ts';
import { commandLine } from '../wording.ts';

interface SubmitOptions {
  input?: string;
  lane?: string;
  priority?: string;
  namespace?: string;
  tag?: string[];
  delay?: string;
  deadline?: string;
  id?: string;
  key?: string;
  ifExists?: IfExists;
  idempotencyKey?: string;
  wait?: true;
  timeout?: string;
}

const IF_EXISTS: readonly IfExists[] = ['attach', 'refuse', 'replace'];

/** The longest timer of Node. */
const TIMEOUT_MAX_MS = 2_147_483_647;

export const submit: CommandSpec = {
  name: 'submit',
  summary: 'submit an execution of a task',
  description: 'Submit an execution of a task and print its id; with --wait, its result.',
  arguments: [['<task>', 'the name of the task']],
  options: [
    ['--input <json>', 'the input: JSON, @file, or - for stdin'],
    ['--lane <name>', 'the lane'],
    ['--priority <n>', `0 to ${LIMITS.priority}, higher first`],
    ['--namespace <name>', 'the namespace'],
    ['--tag <key=value>', 'a tag', { isRepeatable: true }],
    ['--delay <duration>', 'start no sooner than this, such as 90s, 5m, 1h30m'],
    ['--deadline <duration>', 'expire unless it has ended by then'],
    ['--key <key>', 'name it within its namespace: no two that are open have the same key'],
    ['--if-exists <what>', 'with --key: if an open one has it (default: attach)', { choices: IF_EXISTS }],
    ['--idempotency-key <key>', 'the same key submits nothing again'],
    ['--id <id>', 'submit under this id, {fp:N}:uuid; the same id submits nothing again'],
    ['--wait', 'wait until it has ended: print the result, exit with 1 when there is none'],
    ['--timeout <duration>', 'with --wait: stop waiting, with exit code 124; the execution continues'],
  ],
  examples: [
    `flowfabric submit greet --input '{"name":"Ada"}' --wait --timeout 30s`,
    'flowfabric submit report --input @report.json --lane slow --delay 5m',
    'generate | flowfabric submit import --input -',
  ],
  action: run,
};

async function run(session: Session, options: SubmitOptions, kind: string): Promise<number> {
  const timeoutMs =
    options.timeout === undefined ? undefined : parseDuration(options.timeout, '--timeout', TIMEOUT_MAX_MS);
  if (timeoutMs !== undefined && !options.wait) throw new UsageError('--timeout needs --wait.');
  if (options.id !== undefined) parseExecutionId(options.id, '--id');
  if (options.id !== undefined && (options.key ?? options.idempotencyKey) !== undefined)
    throw new UsageError('Give --id or a key, not both.');
  if (options.ifExists !== undefined && options.key === undefined)
    throw new UsageError('--if-exists needs --key.');
  session.databaseUrl();
  const request = await toRequest(kind, options);
  return withEngine(session, { listen: options.wait ? 'on' : 'off' }, async (engine) => {
    const submitted = await engine.executions.submit(request);
    const short = await shortIds(engine, session, submitted);
    const name = short(submitted.executionId);
    const note = noteOn(submitted, name, short);
    if (note !== undefined) session.printer.note(note);
    if (submitted.outcome === 'refused') {
      session.printer.result(submitted, []);
      return EXIT.refused;
    }
    if (options.wait) return waitForEnd(engine, { submitted, name, timeoutMs }, session);
    session.printer.result(submitted, [[[name]]]);
    return EXIT.ok;
  });
}

function noteOn({ outcome, replacedId }: SubmitResult, name: string, short: Shorten): string | undefined {
  switch (outcome) {
    case 'submitted':
      return undefined;
    case 'duplicate':
      return `${name} already exists; nothing was submitted.`;
    case 'attached':
      return `${name} has this key and has not ended; nothing was submitted.`;
    case 'refused':
      return `not submitted: ${name} has this key and has not ended.`;
    case 'replaced':
      return `${short(replacedId!)} had this key and was cancelled.`;
  }
}

async function toRequest(kind: string, options: SubmitOptions): Promise<SubmitRequest> {
  const { input, lane, priority, namespace, tag, delay, deadline, id } = options;
  const { key, ifExists, idempotencyKey } = options;
  return {
    kind,
    ...(lane === undefined ? {} : { lane }),
    ...(namespace === undefined ? {} : { namespace }),
    ...(id === undefined ? {} : { executionId: id }),
    ...(key === undefined ? {} : { key }),
    ...(ifExists === undefined ? {} : { ifExists }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(deadline === undefined
      ? {}
      : { policy: { deadline: parseDuration(deadline, '--deadline', LIMITS.delayMs) } }),
    ...(tag === undefined ? {} : { tags: parseTags(tag) }),
    ...(priority === undefined
      ? {}
      : { priority: parseWhole(priority, '--priority', { min: 0, max: LIMITS.priority }) }),
    ...(delay === undefined ? {} : { delay: parseDuration(delay, '--delay', LIMITS.delayMs) }),
    ...(input === undefined ? {} : { payload: await readInput(input, '--input') }),
  };
}

interface Awaited {
  submitted: SubmitResult;
  /** How its id is printed. */
  name: string;
  timeoutMs: number | undefined;
}

async function waitForEnd(engine: Connection, awaited: Awaited, session: Session): Promise<number> {
  const { submitted, name, timeoutMs } = awaited;
  const { executionId } = submitted;
  const { printer } = session;
  const limit = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
  const command = commandLine(['flowfabric', 'describe', name]);
  const continues = `${name} continues; see \`${command}\`.`;
  printer.note(`waiting for ${name}`);
  try {
    const signal = limit === undefined ? session.interrupted : AbortSignal.any([session.interrupted, limit]);
    return printEnd(awaited, await engine.executions.wait(executionId, { signal }), session);
  } catch (error) {
    if (session.interrupted.aborted) printer.note(`Interrupted. ${continues}`);
    if (session.interrupted.aborted || limit?.aborted !== true) throw error;
    if (printer.format === 'json') printer.result({ ...submitted, end: null }, []);
    printer.note(`Not finished in time. ${continues}`);
    return EXIT.timedOut;
  }
}

function printEnd({ submitted, name }: Awaited, end: ExecutionEnd, { printer }: Session): number {
  const whole = { ...submitted, end };
  if (end.outcome === 'success') {
    printer.result(whole, [[[JSON.stringify(end.result)]]]);
    return EXIT.ok;
  }
  if (printer.format === 'json') printer.result(whole, []);
  const why = end.message === null ? '' : `: ${printable(end.message)}`;
  printer.note(`${name} ended as ${end.outcome}${why}`);
  return EXIT.failed;
}
