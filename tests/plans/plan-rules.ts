/**
 * What no plan of a hot statement may contain, because it grows with a table or with the square of a batch. Pure: plans
 * in, findings out. Exceptions are listed with their reasons; one that is no longer needed is a finding too.
 */
import { nameOf, nodesOf, type PlanNode, type RecordedPlan } from './plan-recorder.ts';

export interface Finding {
  within: string;
  line: number;
  node: string;
  problem: string;
}

interface Exception {
  within: string;
  /** As in `Finding.node`. */
  node: RegExp;
  reason: string;
}

/** The leading column of every index, by the index's name. */
export type LeadingColumns = ReadonlyMap<string, string>;

const ONE_ROW_READERS = [
  'ff_log_events',
  'ff_sequence',
  'ff_adopt_log',
  'ff_read_events',
  'ff_open_slot',
  'ff_expired_slot',
  'ff_drop_slot',
  'ff_count_unstamped',
  'ff_forget_runs',
];

export const EXCEPTIONS: readonly Exception[] = [
  ...ONE_ROW_READERS.map((within) => ({
    within,
    node: /^Seq Scan on ff_sequencer$/,
    reason: 'a table of one row, which is not updated while events are written',
  })),
  ...['ff_sequence', 'ff_adopt_log', 'ff_drop_slot', 'ff_count_unstamped', 'ff_forget_runs'].map(
    (within) => ({
      within,
      node: /^Index (?:Only )?Scan on ff_event_run_pkey$/,
      reason: 'the last run: the last entry of the index, LIMIT 1',
    }),
  ),
  {
    within: 'ff_read_events',
    node: /^Function Scan$/,
    reason: 'expands the events of one row of the log: the arrays are in the row itself',
  },
  {
    within: 'ff_server_identity',
    node: /^Index Scan on pg_database_datname_index$/,
    reason: 'a table of the system: this database by its name',
  },
  {
    within: 'ff_adopt_log',
    node: / on ff_event_\d(?:_ev_id_idx)?$/,
    reason: 'the whole log is read once, after it was moved to another server',
  },
  {
    within: 'ff_slot_is_used',
    node: /^Index (?:Only )?Scan on ff_event_\d_ev_id_idx$/,
    reason: 'whether a slot is empty: the first entry of the index, LIMIT 1',
  },
  {
    within: 'ff_expired_slot',
    node: /^Function Scan of generate_series$/,
    reason: 'the seven slots not being written',
  },
  {
    within: 'ff_expired_slot',
    node: / on ff_consumer(?:_pkey)?$/,
    reason: 'consumers, few by a fixed limit',
  },
  ...['ff_forget_silent_workers', 'ff_explain_workers'].map((within) => ({
    within,
    node: / on ff_worker(?:_pkey)?$/,
    reason: 'workers, of which there are few',
  })),
  ...['ff_explain_workers', 'ff_explain_children'].map((within) => ({
    within,
    node: /^Function Scan of unnest$/,
    reason:
      'expands what one worker offers, or the children one execution waits for: the list is in the row itself',
  })),
  ...['ff_pause_lane', 'ff_set_lane_events'].map((within) => ({
    within,
    node: / on ff_lane(?:_\w+)?$/,
    reason: 'counts lanes, up to a fixed limit, when one is new',
  })),
  ...[
    'ff_judge_signals',
    'ff_resume_if_met',
    'ff_lift_timeout',
    'ff_time_out_suspended',
    'ff_time_suspension',
    'ff_escalate',
    'ff_explain_suspension',
  ].map((within) => ({
    within,
    node: /^Function Scan of jsonb_array_elements$/,
    reason: 'expands the waits of one execution: the list is in the row itself',
  })),
  {
    within: 'ff_signal_adds',
    node: /^Function Scan of jsonb_array_elements_text$/,
    reason: 'expands the waitpoints of each leaf of one condition: the list is in the leaf itself',
  },
  ...['ff_leaves', 'ff_explain_suspension'].map((within) => ({
    within,
    node: /^Function Scan of ff_leaves$/,
    reason: 'expands each part of a condition, whose nesting depth has a fixed limit',
  })),
  ...['ff_current_key', 'ff_rotate_key', 'ff_revoke_key', 'ff_key_verifies'].map((within) => ({
    within,
    node: / on ff_signing_key(?:_\w+)?$/,
    reason: 'keys, of which there are few: unused ones are deleted',
  })),
  {
    within: 'ff_claim',
    node: /^Index (?:Only )?Scan on ff_timer_due$/,
    reason: 'the next timer: the first entry of the index, LIMIT 1',
  },
  {
    within: 'ff_claim',
    node: /^Index (?:Only )?Scan on ff_route_pkey$/,
    reason: 'the highest route: the last entry of the index, LIMIT 1',
  },
  ...['ff_claim', 'ff_unpaused'].map((within) => ({
    within,
    node: /^(?:Bitmap )?Index (?:Only )?Scan on ff_lane_paused$/,
    reason: 'which lanes are paused: an index that is mostly empty',
  })),
  ...['ff_submit', 'ff_traits_in_lanes'].map((within) => ({
    within,
    node: /^(?:Bitmap )?Index (?:Only )?Scan on ff_lane_telling$/,
    reason: 'which lanes have all events: an index that is mostly empty',
  })),
  ...['ff_submit_beside', 'ff_forget'].map((within) => ({
    within,
    node: /^Function Scan of jsonb_each_text$/,
    reason: 'expands the tags of one execution: the object is in the row itself',
  })),
  ...['ff_downstreams', 'ff_held_back_by'].map((within) => ({
    within,
    node: /^Index (?:Only )?Scan on ff_flow_\w+$/,
    reason: 'whether there are flows at all: the first entry of an index, LIMIT 1',
  })),
  {
    within: 'ff_tell_ends',
    node: /^Index (?:Only )?Scan on ff_flow_job_pkey$/,
    reason: 'the oldest jobs: the first entries of the index, with a limit',
  },
  {
    within: 'ff_tell_lost_ends',
    node: /^Seq Scan on ff_flow_job$/,
    reason: 'the remaining jobs, read once: mostly none',
  },
  {
    within: 'ff_reconcile_siblings',
    node: /^Index (?:Only )?Scan on ff_pending_cancel_groups_oldest$/,
    reason: 'the oldest tickets: the first entries of the index, with a limit',
  },
  {
    within: 'ff_reconcile_siblings',
    node: /^Function Scan of unnest$/,
    reason: 'expands the losers of one join: the list is in the row itself',
  },
  {
    within: 'ff_intern_routes',
    node: / on ff_route_(?:pkey|lane_kind_capabilities_key)$/,
    reason: 'counts the routes, few by a fixed limit, only when a new one is interned',
  },
  {
    within: 'ff_quiet_routes',
    node: / on ff_lane_quiet$/,
    reason: 'the lanes without renewal events, mostly none',
  },
  {
    within: 'ff_sweep_grants',
    node: /^Function Scan of unnest$/,
    reason: 'expands the executions of one claim: the list is in the row itself',
  },
  {
    within: 'ff_intern_policies',
    node: / on ff_policy_\w+$/,
    reason: 'counts the policies, few by a fixed limit, only when a route is interned',
  },
  {
    within: 'ff_holders',
    node: /^(?:CTE Scan|Nested Loop|Function Scan of \w+)$/,
    reason: 'the few sessions and locks of the server, when a caller is told who holds a row',
  },
  ...['ff_find_routes', 'ff_intern_routes'].map((within) => ({
    within,
    node: /^ProjectSet$/,
    reason: 'expands the capabilities of one route: the array is in the row itself',
  })),
  {
    within: 'ff_idle_routes',
    node: / on ff_route(?:_\w+)?$/,
    reason: 'reads the routes, few by a fixed limit, once a minute',
  },
  {
    within: 'ff_forget_lanes',
    node: /^Index Scan on ff_lane_pkey$/,
    reason: 'reads the lanes, hardly more than there are routes, once a minute',
  },
  ...['ff_forget_routes', 'ff_forget_former_routes'].map((within) => ({
    within,
    node: /^Index (?:Only )?Scan on ff_event_\d_ev_id_idx$/,
    reason: 'the first or the last event: one entry of the index, LIMIT 1',
  })),
];

const JOINS = new Set(['Hash Join', 'Merge Join']);
const INDEX_SCANS = new Set(['Index Scan', 'Index Only Scan', 'Bitmap Index Scan']);
/** Scans without an index: repeated for each row of something else, they cost the product of the two. */
const BATCH_SCANS = new Set([
  'CTE Scan',
  'Function Scan',
  'ProjectSet',
  'Materialize',
  'Table Function Scan',
]);

export function findingsOf(plan: RecordedPlan, leading: LeadingColumns): Finding[] {
  const hashed = hashedSubPlans(plan.root);
  return nodesOf(plan.root).flatMap((node) =>
    problemsOf(node, leading, hashed).map((found) => ({
      within: plan.within ?? CLIENT,
      line: plan.line,
      node: nameOf(found.node),
      problem: found.problem,
    })),
  );
}

const CLIENT = 'client';

type Problem = { node: PlanNode; problem: string };

function problemsOf(node: PlanNode, leading: LeadingColumns, hashed: ReadonlySet<string>): Problem[] {
  const type = node['Node Type'];
  const relation = node['Relation Name'];
  const problems: Problem[] = [];
  if (type === 'Seq Scan' && relation?.startsWith('ff_'))
    problems.push({ node, problem: 'reads the whole table' });
  if (JOINS.has(type)) problems.push({ node, problem: 'joins by another way than look-ups from the batch' });
  if (node['Join Filter'] !== undefined)
    problems.push({ node, problem: `join filter ${node['Join Filter']}` });
  if (INDEX_SCANS.has(type)) problems.push(...indexProblems(node, leading));
  if (type === 'Nested Loop') problems.push(...repeated(innerOf(node), 'is read again for each outer row'));
  if (isRepeatedSubPlan(node, hashed))
    problems.push(...repeated(node, 'is read again for each row that asks'));
  return problems;
}

function indexProblems(node: PlanNode, leading: LeadingColumns): Problem[] {
  const condition = node['Index Cond'];
  if (condition === undefined) return [{ node, problem: 'reads the whole index' }];
  const column = leading.get(node['Index Name'] ?? '');
  if (column !== undefined && condition.includes(column)) return [];
  return [{ node, problem: `seeks by ${condition}, which is not how the index begins` }];
}

function innerOf(node: PlanNode): PlanNode | undefined {
  return node.Plans?.find((child) => child['Parent Relationship'] === 'Inner');
}

function repeated(node: PlanNode | undefined, problem: string): Problem[] {
  if (node === undefined) return [];
  return nodesOf(node)
    .filter((below) => BATCH_SCANS.has(below['Node Type']))
    .map((below) => ({ node: below, problem }));
}

/** A hashed sub-plan is read once; so are CTEs and init plans, which have other names. */
function isRepeatedSubPlan(node: PlanNode, hashed: ReadonlySet<string>): boolean {
  const name = node['Subplan Name'] ?? '';
  return node['Parent Relationship'] === 'SubPlan' && name.startsWith('SubPlan ') && !hashed.has(name);
}

function hashedSubPlans(root: PlanNode): Set<string> {
  const names = [...JSON.stringify(root).matchAll(/hashed (SubPlan \d+)/g)];
  return new Set(names.map((match) => match[1] ?? ''));
}

export function isExcepted(finding: Finding, exceptions: readonly Exception[]): boolean {
  return exceptions.some(({ within, node }) => within === finding.within && node.test(finding.node));
}

/** The findings without an exception, one line each, without duplicates. */
export function refusals(plans: readonly RecordedPlan[], leading: LeadingColumns): string[] {
  const findings = plans.flatMap((plan) => findingsOf(plan, leading));
  const lines = findings
    .filter((finding) => !isExcepted(finding, EXCEPTIONS))
    .map(({ within, line, node, problem }) => `${within} line ${line}: ${node}: ${problem}`);
  return [...new Set(lines)].toSorted();
}

/** The server's default: a statement estimated to cost more is compiled to machine code first, which takes seconds. */
const COMPILED_ABOVE = 100_000;

/** The plans that a server with a compiler would compile, one line each. */
export function compiled(plans: readonly RecordedPlan[]): string[] {
  const lines = plans
    .filter(
      ({ root, mayCompile, isCompiled }) => isCompiled || (mayCompile && root['Total Cost'] > COMPILED_ABOVE),
    )
    .map(({ root, within, text }) => {
      const start = text.trim().replaceAll(/\s+/g, ' ').slice(0, 100);
      return `${within ?? CLIENT}, cost ${Math.round(root['Total Cost'])}: ${start}`;
    });
  return [...new Set(lines)];
}
