/**
 * `flowfabric submit`: hands one execution to the engine and, when asked to, waits for its end. Prints the id, or the
 * result when it waited, and nothing else, so that a script can take it as it is.
 */
import type { Connection } from '../../connect/connect.ts';
import type { ExecutionEnd, SubmitRequest, SubmitResult } from '../../contract/engine.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseDuration, parseTags, parseWhole, readInput } from '../input.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';

export interface SubmitOptions {
  input?: string;
  lane?: string;
  priority?: string;
  namespace?: string;
  tag?: string[];
  delay?: string;
  deadline?: string;
  id?: string;
  key?: string;
  wait?: true;
  timeout?: string;
}

/** Timers of Node go no further; nobody waits at a prompt for three weeks. */
const TIMEOUT_MAX_MS = 2_147_483_647;

export async function submitCommand(kind: string, options: SubmitOptions, session: Session): Promise<number> {
  const timeoutMs =
    options.timeout === undefined ? undefined : parseDuration(options.timeout, '--timeout', TIMEOUT_MAX_MS);
  if (timeoutMs !== undefined && !options.wait) throw new UsageError('--timeout needs --wait.');
  if (options.id !== undefined) parseExecutionId(options.id, '--id');
  if (options.id !== undefined && options.key !== undefined)
    throw new UsageError('Give --id or --key, not both.');
  session.databaseUrl();
  const request = await toRequest(kind, options);
  return withEngine(session, { listen: options.wait ? 'on' : 'off' }, async (engine) => {
    const submitted = await engine.submit(request);
    if (submitted.outcome === 'duplicate')
      session.printer.note(`${submitted.executionId} was there already; nothing was submitted.`);
    if (options.wait) return waitForEnd(engine, submitted, session, timeoutMs);
    session.printer.result(submitted, [[[submitted.executionId]]]);
    return EXIT.ok;
  });
}

async function toRequest(kind: string, options: SubmitOptions): Promise<SubmitRequest> {
  const { input, lane, priority, namespace, tag, delay, deadline, id, key } = options;
  return {
    kind,
    ...(lane === undefined ? {} : { lane }),
    ...(namespace === undefined ? {} : { namespace }),
    ...(id === undefined ? {} : { executionId: id }),
    ...(key === undefined ? {} : { idempotencyKey: key }),
    ...(deadline === undefined
      ? {}
      : { policy: { deadlineMs: parseDuration(deadline, '--deadline', LIMITS.delayMs) } }),
    ...(tag === undefined ? {} : { tags: parseTags(tag) }),
    ...(priority === undefined
      ? {}
      : { priority: parseWhole(priority, '--priority', { min: 0, max: LIMITS.priority }) }),
    ...(delay === undefined ? {} : { delayMs: parseDuration(delay, '--delay', LIMITS.delayMs) }),
    ...(input === undefined ? {} : { payload: await readInput(input, '--input') }),
  };
}

async function waitForEnd(
  engine: Connection,
  submitted: SubmitResult,
  session: Session,
  timeoutMs: number | undefined,
): Promise<number> {
  const { executionId } = submitted;
  const { printer } = session;
  const limit = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
  const goesOn = `${executionId} goes on; see \`flowfabric show '${executionId}'\`.`;
  printer.note(`waiting for ${executionId}`);
  try {
    const signal = limit === undefined ? session.signal : AbortSignal.any([session.signal, limit]);
    return printEnd(submitted, await engine.waitForEnd(executionId, { signal }), session);
  } catch (error) {
    if (session.signal.aborted) printer.note(`Interrupted. ${goesOn}`);
    if (session.signal.aborted || limit?.aborted !== true) throw error;
    if (printer.format === 'json') printer.result({ ...submitted, end: null }, []);
    printer.note(`Not ended within the time given. ${goesOn}`);
    return EXIT.timedOut;
  }
}

function printEnd(submitted: SubmitResult, end: ExecutionEnd, { printer }: Session): number {
  const whole = { ...submitted, end };
  if (end.outcome === 'success') {
    printer.result(whole, [[[JSON.stringify(end.result)]]]);
    return EXIT.ok;
  }
  if (printer.format === 'json') printer.result(whole, []);
  const why = end.message === null ? '' : `: ${printable(end.message)}`;
  printer.note(`${submitted.executionId} ended as ${end.outcome}${why}`);
  return EXIT.failed;
}
