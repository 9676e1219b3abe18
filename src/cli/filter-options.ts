/**
 * The options that select executions: their help, the filter they become, and the way back from a filter to options, so
 * that a command to continue with can be printed. The engine decides whether a value is allowed; its errors are reworded
 * to name the option.
 */
import { durationMs } from '../contract/shape/duration.ts';
import { isEngineError } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';
import type { Connection } from '../connect/connection.ts';
import type { Upkeep } from '../contract/connection.ts';
import type { ExecutionFilter } from '../contract/operations.ts';
import type { PublicState } from '../contract/states.ts';
import { DEFAULT_SCHEMA } from '../engine/database/migrations/migrate.ts';
import type { OptionSpec } from './command.ts';
import { UsageError } from './exit-codes.ts';
import { parseTags } from './input.ts';
import type { Session } from './session.ts';
import { executionIdOf } from './short-ids.ts';
import { instant } from './wording.ts';

export interface FilterOptions {
  state?: string[];
  lane?: string;
  kind?: string;
  namespace?: string;
  tag?: string[];
  parent?: string;
  descendants?: boolean;
  createdAfter?: string;
  createdBefore?: string;
  endedAfter?: string;
  endedBefore?: string;
  errorCategory?: string;
  errorContains?: string;
}

const NAMES = [
  'state',
  'lane',
  'kind',
  'namespace',
  'tag',
  'parent',
  'descendants',
  'createdAfter',
  'createdBefore',
  'endedAfter',
  'endedBefore',
  'errorCategory',
  'errorContains',
] as const satisfies readonly (keyof FilterOptions)[];

const UNSUCCESSFUL: readonly PublicState[] = ['failed', 'expired', 'cancelled', 'skipped'];
const ENDS: readonly PublicState[] = ['completed', ...UNSUCCESSFUL];

const STATES: readonly PublicState[] = [
  'active',
  'waiting',
  'delayed',
  'waiting_children',
  'suspended',
  ...ENDS,
];

export const FILTER_OPTIONS: readonly OptionSpec[] = [
  ['--state <state>', 'in this state, such as waiting or failed', { isRepeatable: true, choices: STATES }],
  ['--lane <name>', 'in this lane'],
  ['--kind <task>', 'of this task'],
  ['--namespace <name>', 'of this namespace'],
  ['--tag <key=value>', 'with this tag', { isRepeatable: true }],
  ['--parent <id>', 'spawned by this execution'],
  ['--descendants', 'with --parent: and everything below those'],
  ['--created-after <time>', 'submitted since: 2h for two hours ago, or a time such as 2026-05-17T08:00Z'],
  ['--created-before <time>', 'submitted before'],
  ['--ended-after <time>', 'ended since'],
  ['--ended-before <time>', 'ended before'],
  ['--error-category <name>', 'failed with this category'],
  ['--error-contains <text>', 'failed with this text in the message'],
];

export function hasFilter(options: FilterOptions): boolean {
  return NAMES.some((name) => options[name] !== undefined);
}

/** Ages are counted back from the database's clock: the host's may be wrong. */
type Clock = Pick<Upkeep, 'serverTimeMs'>;

/** The filter the options describe. `states` applies when there is no --state; null means every state. */
export async function readFilter(
  options: FilterOptions,
  engine: Connection,
  session: Session,
  states: readonly PublicState[] | null,
): Promise<ExecutionFilter> {
  const { lane, kind, namespace, tag, errorCategory, errorContains } = options;
  const parent =
    options.parent === undefined
      ? undefined
      : await executionIdOf(engine, session, options.parent, '--parent');
  const asked = (options.state as PublicState[] | undefined) ?? states;
  const failure = {
    ...(errorCategory === undefined ? {} : { category: errorCategory }),
    ...(errorContains === undefined ? {} : { contains: errorContains }),
  };
  return {
    ...(asked === null ? {} : { states: asked }),
    ...(namespace === undefined ? {} : { namespace }),
    ...(lane === undefined ? {} : { lane }),
    ...(kind === undefined ? {} : { kind }),
    ...(tag === undefined ? {} : { tags: parseTagFilter(tag) }),
    ...(parent === undefined ? {} : { parentId: parent }),
    ...(options.descendants === undefined ? {} : { descendants: options.descendants }),
    ...(await readTimes(options, engine.upkeep)),
    ...(Object.keys(failure).length === 0 ? {} : { failure }),
  };
}

/** Options that only finished executions can match imply the finished states. */
export function impliedStates(options: FilterOptions): readonly PublicState[] | null {
  if (options.errorCategory !== undefined || options.errorContains !== undefined) return UNSUCCESSFUL;
  return options.endedAfter === undefined && options.endedBefore === undefined ? null : ENDS;
}

function parseTagFilter(pairs: readonly string[]): Record<string, string> {
  const tags = parseTags(pairs);
  if (Object.keys(tags).length < pairs.length)
    throw new UsageError('--tag names a key twice; an execution has one value for each key.');
  return tags;
}

type Times = Pick<ExecutionFilter, 'createdFromMs' | 'createdBeforeMs' | 'endedFromMs' | 'endedBeforeMs'>;

const TIMES = [
  ['createdFromMs', 'createdAfter', '--created-after'],
  ['createdBeforeMs', 'createdBefore', '--created-before'],
  ['endedFromMs', 'endedAfter', '--ended-after'],
  ['endedBeforeMs', 'endedBefore', '--ended-before'],
] as const;

/** Reads the database's clock only when an age was given. */
async function readTimes(options: FilterOptions, clock: Clock): Promise<Times> {
  const moments = TIMES.flatMap(([member, name, option]) => {
    const text = options[name];
    return text === undefined ? [] : [{ member, moment: parseMoment(text, option) }];
  });
  const nowMs = moments.some(({ moment }) => 'agoMs' in moment) ? await clock.serverTimeMs() : 0;
  return Object.fromEntries(
    moments.map(({ member, moment }) => [member, 'agoMs' in moment ? nowMs - moment.agoMs : moment.atMs]),
  );
}

/** The part of ISO 8601 that people type. */
const MOMENT = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)?)?$/;
const HAS_ZONE = /(?:Z|[+-]\d\d:\d\d)$/;

/** Without a zone it is UTC, like every time that is printed. */
function parseMoment(text: string, option: string): { agoMs: number } | { atMs: number } {
  if (MOMENT.test(text)) {
    const atMs = Date.parse(text.includes('T') && !HAS_ZONE.test(text) ? `${text}Z` : text);
    if (!Number.isNaN(atMs)) return { atMs };
  }
  try {
    return { agoMs: durationMs(text, option, LIMITS.delayMs) };
  } catch {
    throw new UsageError(
      `${option} must be an age such as 90s, 2h or 7d, or a time such as 2026-05-17T08:00Z.`,
    );
  }
}

/** The filter as options, with ages as fixed times: a cursor is valid for exactly one filter. */
export function filterWords(filter: ExecutionFilter): string[] {
  const { states = [], namespace, lane, kind, tags = {}, parentId, failure } = filter;
  const word = (option: string, value: string | undefined): string[] =>
    value === undefined ? [] : [option, value];
  return [
    ...states.flatMap((state) => ['--state', state]),
    ...word('--lane', lane),
    ...word('--kind', kind),
    ...word('--namespace', namespace),
    ...Object.entries(tags).flatMap(([key, value]) => ['--tag', `${key}=${value}`]),
    ...word('--parent', parentId),
    ...(filter.descendants === true ? ['--descendants'] : []),
    ...TIMES.flatMap(([member, , option]) => {
      const ms = filter[member];
      return ms === undefined ? [] : [option, instant(ms)];
    }),
    ...word('--error-category', failure?.category),
    ...word('--error-contains', failure?.contains),
  ];
}

/** What a printed command needs besides its own words. The URL is left out: it may contain a password. */
export function schemaWords({ schema }: Session): string[] {
  return schema === DEFAULT_SCHEMA ? [] : ['--schema', schema];
}

/** Longer names first: some names are the beginning of others. */
const OPTION_OF: readonly [RegExp, string][] = [
  [/filter\.states(?:\[\d+\])?/g, '--state'],
  [/filter\.tags\./g, '--tag '],
  [/filter\.tags/g, '--tag'],
  [/filter\.parentId/g, '--parent'],
  [/filter\.descendants/g, '--descendants'],
  [/filter\.failure\.category/g, '--error-category'],
  [/filter\.failure\.contains/g, '--error-contains'],
  [/filter\.failure/g, '--error-category or --error-contains'],
  ...TIMES.map(([member, , option]): [RegExp, string] => [new RegExp(`filter\\.${member}`, 'g'), option]),
  [/filter\.(?=lane|kind|namespace)/g, '--'],
  [/^cursor/, '--cursor'],
];

/** An engine error about the filter, reworded to name the option; any other error unchanged. */
export function inOptions(error: unknown): unknown {
  if (!isEngineError(error) || !/^(?:filter\.|cursor$)/.test(error.field ?? '')) return error;
  let named = error.message;
  for (const [field, option] of OPTION_OF) named = named.replace(field, option);
  const how = error.code === 'invalid_cursor' ? ' Paste the whole command that was printed with it.' : '';
  return new UsageError(`${named}${how}`);
}
