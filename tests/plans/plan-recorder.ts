/**
 * A connection that reports the plan of every statement it runs, including those inside functions: auto_explain sends
 * each plan as a notice, with the function and line it belongs to. What a plan may look like is not decided here.
 */
import type pg from 'pg';
import { openDatabase, type Database, type PoolLike } from '../../src/engine/database/database.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';

export interface PlanNode {
  'Node Type': string;
  'Parent Relationship'?: string;
  'Subplan Name'?: string;
  'Total Cost': number;
  'Relation Name'?: string;
  'Function Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'Join Filter'?: string;
  'Actual Rows'?: number;
  'Actual Loops'?: number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Join Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  'Shared Hit Blocks'?: number;
  'Shared Read Blocks'?: number;
  Plans?: PlanNode[];
}

export interface RecordedPlan {
  /** Name of the function the statement is in, or null for one sent by the client. */
  within: string | null;
  /** Line of the statement in the function's body, from 1. */
  line: number;
  text: string;
  root: PlanNode;
  /** Whether the server compiled it to machine code; a server without a compiler never does. */
  isCompiled: boolean;
  /** Whether a server with a compiler may: functions can forbid it for everything they run. */
  mayCompile: boolean;
}

export interface Recorder {
  client: pg.Client;
  /** The store's view of the connection: its functions run here and are recorded. */
  database: Database;
  /** Runs the work and returns the plans of everything it ran. */
  record(work: () => Promise<unknown>): Promise<RecordedPlan[]>;
}

/** `counted` plans also include how many rows and buffers each node touched; nothing is ever timed. */
export type Detail = 'planned' | 'counted';

const PARAMETERS_ARE_LOGGED_SINCE = 160_000;

export async function openRecorder(test: TestDatabase, detail: Detail): Promise<Recorder> {
  const client = await test.connect();
  let plans: RecordedPlan[] = [];
  client.on('notice', ({ message, where }) => {
    const plan = parsePlan(message ?? '', where ?? '');
    if (plan !== undefined) plans.push(plan);
  });
  await setUp(client, detail);
  const pool: PoolLike = {
    query: ({ text, values, types }) =>
      client.query({ text, values, types: types as pg.CustomTypesConfig }) as Promise<{ rows: unknown[] }>,
  };
  const record = async (work: () => Promise<unknown>): Promise<RecordedPlan[]> => {
    plans = [];
    await client.query('SET auto_explain.log_min_duration = 0');
    try {
      await work();
    } finally {
      await client.query('SET auto_explain.log_min_duration = -1');
    }
    return plans;
  };
  return { client, database: openDatabase({ pool, schema: test.schema }), record };
}

async function setUp(client: pg.Client, detail: Detail): Promise<void> {
  await client.query("LOAD 'auto_explain'");
  const settings = {
    log_nested_statements: 'on',
    log_format: 'json',
    // As notices they reach the client and stay out of the server log.
    log_level: 'notice',
    log_analyze: detail === 'counted' ? 'on' : 'off',
    log_buffers: detail === 'counted' ? 'on' : 'off',
    log_timing: 'off',
    // Shows whether a sub-plan in a select list is hashed.
    log_verbose: 'on',
    log_settings: 'on',
  };
  for (const [name, value] of Object.entries(settings)) {
    await client.query(`SET auto_explain.${name} = '${value}'`);
  }
  const version = await client.query<{ number: number }>(
    "SELECT current_setting('server_version_num')::integer AS number",
  );
  if ((version.rows[0]?.number ?? 0) >= PARAMETERS_ARE_LOGGED_SINCE) {
    await client.query('SET auto_explain.log_parameter_max_length = 0');
  }
}

/**
 * The innermost function comes first; a statement sent by the client has no such line. Declarations have a line of
 * their own.
 */
const PLACE = /^PL\/pgSQL function (?:\w+\.)?(\w+)\(.*\) line (\d+) (?:at|during) /m;

interface LoggedPlan {
  'Query Text': string;
  Plan: PlanNode;
  JIT?: object;
  /** The settings that differ from the server's defaults. */
  Settings?: Record<string, string>;
}

function parsePlan(message: string, where: string): RecordedPlan | undefined {
  const found = /^duration: \S+ ms {2}plan:\n([\s\S]*)$/.exec(message);
  if (found === null) return undefined;
  const json = JSON.parse(found[1] ?? '') as LoggedPlan;
  const place = PLACE.exec(where);
  return {
    within: place?.[1] ?? null,
    line: Number(place?.[2] ?? 0),
    text: json['Query Text'],
    root: json.Plan,
    isCompiled: json.JIT !== undefined,
    mayCompile: json.Settings?.['jit'] !== 'off',
  };
}

/** A node and everything below it. */
export function nodesOf(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

/** Buffers touched by a call, in any of its functions. */
export function buffersOf(plans: readonly RecordedPlan[]): number {
  return plans
    .filter(({ within }) => within === null)
    .reduce((sum, { root }) => sum + (root['Shared Hit Blocks'] ?? 0) + (root['Shared Read Blocks'] ?? 0), 0);
}

/** The most rows any one node of the plans read, whether it kept them or not. */
export function mostRowsOf(plans: readonly RecordedPlan[]): { rows: number; at: string } {
  let most = { rows: 0, at: '' };
  for (const { within, line, root } of plans) {
    for (const node of nodesOf(root)) {
      const rows = rowsOf(node);
      if (rows > most.rows) most = { rows, at: `${within ?? 'client'}:${line} ${nameOf(node)}` };
    }
  }
  return most;
}

function rowsOf(node: PlanNode): number {
  const removed =
    (node['Rows Removed by Filter'] ?? 0) +
    (node['Rows Removed by Join Filter'] ?? 0) +
    (node['Rows Removed by Index Recheck'] ?? 0);
  return ((node['Actual Rows'] ?? 0) + removed) * (node['Actual Loops'] ?? 0);
}

export function nameOf(node: PlanNode): string {
  const on = node['Index Name'] ?? node['Relation Name'];
  if (on !== undefined) return `${node['Node Type']} on ${on}`;
  const of = node['Function Name'];
  return of === undefined ? node['Node Type'] : `${node['Node Type']} of ${of}`;
}
