/**
 * `flowfabric waitpoints`: where executions wait for signals, longest wait first; approving one as an operator, without a
 * token; and issuing and revoking tokens. The list is one object per line as JSON. Tokens are named by their
 * fingerprints; only `issue-token` prints one, and it is stored nowhere.
 */
import { userInfo } from 'node:os';
import type { Connection } from '../../connect/connection.ts';
import { isEngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { TokenRequest, WaitpointPage } from '../../contract/signals.ts';
import { AN_ID, CURSOR_OPTION, ID_ARGUMENT, MAYBE_ID_ARGUMENT, type CommandSpec } from '../command.ts';
import {
  asOption,
  IDEMPOTENCY_OPTION,
  parseSource,
  PAYLOAD_OPTION,
  printDelivery,
  readSignal,
  type SignalOptions,
} from '../delivery.ts';
import { waitpointLines } from '../drawing/waitpoint.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { DEFAULT_LIMIT, parseDuration, parseLimit, readInput } from '../input.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, noExecution, shortIds } from '../short-ids.ts';
import { commandLine } from '../wording.ts';

interface ListOptions {
  limit?: string;
  cursor?: string;
}

interface ApproveOptions extends SignalOptions {
  by?: string;
}

interface TokenOptions {
  for?: string;
  expires?: string;
  once?: true;
  says?: string;
  payload?: string;
  link?: string;
}

const NO_WAITS =
  'nothing is waiting for a signal. A handler waits with ctx.waitFor(name); see also: flowfabric list';

const WAITPOINT_ARGUMENT = ['<waitpoint>', 'the name of the waitpoint'] as const;

export const waitpoints: CommandSpec = {
  name: 'waitpoints',
  summary: 'list pending waits and approvals; issue tokens',
  description: 'The waitpoints at which executions wait for signals.',
  examples: ['flowfabric waitpoints list', `flowfabric waitpoints approve ${AN_ID} manager`],
  commands: [
    {
      name: 'list',
      summary: 'list pending waits and approvals',
      description:
        'List the waitpoints that executions are suspended on, longest wait first;\n' +
        'or all open waitpoints of one execution.',
      arguments: [MAYBE_ID_ARGUMENT],
      options: [
        ['--limit <n>', `of how many executions, 1 to ${LIMITS.listPage} (default: ${DEFAULT_LIMIT})`],
        CURSOR_OPTION,
      ],
      examples: ['flowfabric waitpoints list', `flowfabric waitpoints list ${AN_ID}`],
      action: list,
    },
    {
      name: 'approve',
      summary: 'send a signal as an operator',
      description: 'Send a signal to a waitpoint as an operator, without a token.',
      arguments: [ID_ARGUMENT, WAITPOINT_ARGUMENT],
      options: [
        ['--by <name>', 'who approves; the same name counts once (default: your user name)'],
        ['--name <name>', 'the name of the signal (default: approved)'],
        PAYLOAD_OPTION,
        IDEMPOTENCY_OPTION,
      ],
      examples: [
        `flowfabric waitpoints approve ${AN_ID} manager --by ada`,
        `flowfabric waitpoints approve ${AN_ID} manager --name rejected`,
      ],
      action: approve,
    },
    {
      name: 'issue-token',
      summary: 'create a signed approval link or token',
      description:
        'Print a token for a waitpoint, or with --link a link. Anyone who has it can\n' +
        'send the signal. Needs the variable FLOWFABRIC_SIGNING_SECRET.',
      arguments: [ID_ARGUMENT, WAITPOINT_ARGUMENT],
      options: [
        ['--for <type:identity>', 'who it is for: they are the source of its signals'],
        ['--expires <duration>', 'how long it is valid (default: 7d)'],
        ['--once', 'valid for one signal'],
        ['--says <name>', 'valid only for signals of this name'],
        ['--payload <json>', 'with --says: and with this payload; JSON, @file, or - for stdin'],
        ['--link <url>', 'print a link to this address instead'],
      ],
      examples: [
        `flowfabric waitpoints issue-token ${AN_ID} manager --for user:ada --once`,
        `flowfabric waitpoints issue-token ${AN_ID} manager --link https://example.org`,
      ],
      action: issueToken,
    },
    {
      name: 'revoke-tokens',
      summary: 'revoke all tokens of a waitpoint',
      description: 'Revoke all tokens of a waitpoint that were issued so far.',
      arguments: [ID_ARGUMENT, WAITPOINT_ARGUMENT],
      examples: [`flowfabric waitpoints revoke-tokens ${AN_ID} manager`],
      action: revokeTokens,
    },
  ],
};

async function list(session: Session, options: ListOptions, given: string | undefined): Promise<number> {
  if (given !== undefined) checkId(given);
  const { cursor } = options;
  if (given !== undefined && (cursor ?? options.limit) !== undefined)
    throw new UsageError('--limit and --cursor apply only to the list of all executions.');
  const limit = parseLimit(options.limit);
  const signingSecret = session.signingSecrets();
  await withEngine(session, { listen: 'off', signingSecret }, async (engine) => {
    const id = given === undefined ? undefined : await executionIdOf(engine, session, given);
    const request =
      id === undefined ? { limit, ...(cursor === undefined ? {} : { cursor }) } : { executionId: id };
    const page = await engine.waitpoints.list(request);
    if (id !== undefined && page.waitpoints.length === 0) await refuseUnknown(engine, id);
    const { waitpoints: found } = page;
    const nowMs = await engine.upkeep.serverTimeMs();
    const short = await shortIds(engine, session, [found, id]);
    const { printer } = session;
    printer.list(found, waitpointLines(found, { nowMs, short, width: printer.columns }));
    printRest({ id: id === undefined ? undefined : short(id), limit, page }, session);
  }).catch((error: unknown) => {
    throw isEngineError(error) && error.code === 'invalid_cursor'
      ? new UsageError(error.message.replace(/^cursor/, '--cursor'))
      : error;
  });
  return EXIT.ok;
}

async function refuseUnknown(engine: Connection, id: string): Promise<void> {
  if ((await engine.executions.describe(id)) === null) throw await noExecution(engine, id);
}

interface Listed {
  id: string | undefined;
  limit: number;
  page: WaitpointPage;
}

function printRest({ id, limit, page: { waitpoints: found, cursor } }: Listed, session: Session): void {
  const { printer } = session;
  if (cursor !== null) {
    const paged = limit === DEFAULT_LIMIT ? [] : ['--limit', String(limit)];
    const words = ['flowfabric', 'waitpoints', 'list', ...schemaWords(session), ...paged, '--cursor', cursor];
    printer.next('there may be more; continue with', cursor, commandLine(words));
  } else if (found.length === 0) {
    printer.note(id === undefined ? NO_WAITS : `${id} has no open waitpoint. See: flowfabric explain ${id}`);
  }
}

async function approve(
  session: Session,
  options: ApproveOptions,
  id: string,
  waitpoint: string,
): Promise<number> {
  checkId(id);
  const request = { by: options.by ?? userName(), ...(await readSignal(options)) };
  const answer = await withEngine(session, { listen: 'off' }, async (engine) =>
    engine.waitpoints.approve(await executionIdOf(engine, session, id), waitpoint, request),
  ).catch((error: unknown) => {
    throw asOption(error, '--source');
  });
  return printDelivery(answer, session);
}

/** The process may run without an account on the machine. */
function userName(): string {
  try {
    return userInfo().username || 'operator';
  } catch {
    return 'operator';
  }
}

async function issueToken(
  session: Session,
  options: TokenOptions,
  id: string,
  waitpoint: string,
): Promise<number> {
  checkId(id);
  const request = await readTokenRequest(options);
  const signingSecret = session.signingSecrets();
  const issued = await withEngine(session, { listen: 'off', signingSecret }, async (engine) =>
    engine.waitpoints.issueToken(await executionIdOf(engine, session, id), waitpoint, request),
  ).catch((error: unknown) => {
    throw asOption(error, '--for');
  });
  session.printer.result(issued, [[[issued.link ?? issued.token]]]);
  return EXIT.ok;
}

async function readTokenRequest(options: TokenOptions): Promise<TokenRequest> {
  const { expires, once, says, payload, link } = options;
  if (payload !== undefined && says === undefined) throw new UsageError('--payload needs --says.');
  const more = payload === undefined ? {} : { payload: await readInput(payload, '--payload') };
  return {
    ...(options.for === undefined ? {} : { source: parseSource(options.for, '--for') }),
    ...(expires === undefined ? {} : { expiresIn: parseDuration(expires, '--expires', LIMITS.tokenMs) }),
    ...(says === undefined ? {} : { signal: { name: says, ...more } }),
    ...(once ? { use: 'once' as const } : {}),
    ...(link === undefined ? {} : { linkTo: link }),
  };
}

async function revokeTokens(
  session: Session,
  _options: object,
  given: string,
  waitpoint: string,
): Promise<number> {
  checkId(given);
  const id = await withEngine(session, { listen: 'off' }, async (engine) => {
    const executionId = await executionIdOf(engine, session, given);
    await engine.waitpoints.revokeTokens(executionId, waitpoint);
    return executionId;
  });
  const revoked = `tokens of ${printable(waitpoint)} issued so far are no longer valid`;
  session.printer.result({ executionId: id, waitpoint, outcome: 'revoked' }, [[[revoked, 'good']]]);
  return EXIT.ok;
}
