/**
 * What a running handler does besides finishing: record steps, pause, report progress. Calls made at the same time
 * share a statement; a step recorded in the caller's transaction is committed with it.
 */
import type { LastOf } from '../../contract/described.ts';
import type {
  ListedStep,
  StepKey,
  NewStep,
  PauseOutcome,
  PauseRequest,
  Progress,
  RecordOutcome,
  StepRecord,
} from '../../contract/steps.ts';
import { isPassingTrouble } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { anyString, flag, func, number, parsed, string, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Json } from '../../contract/json.ts';
import { REDACTED, type Redaction, type RevealOptions } from '../../contract/redaction.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { fault, faultAt, refuse, shape } from '../../contract/shape/shape.ts';
import type { SqlExecutor } from '../../contract/transactions.ts';
import type { WaitEnd } from '../../contract/signals.ts';
import {
  listSteps as listStored,
  pauseExecutions,
  readSteps as readStored,
  recordSteps,
  recordStepsInside,
  reportProgress,
  type PauseRow,
  type ProgressRow,
  type ShownStep,
  type StepAnswer,
  type StepRow,
  type StoredStep,
} from './steps.sql.ts';
import { pauseFields, pauseTerms } from '../executions/pause-terms.ts';
import { announce } from '../kit/announce.ts';
import { Batch } from '../kit/batch.ts';
import type { EngineContext } from '../kit/context.ts';
import { cutText } from '../../model/cut-text.ts';
import { shownValue } from '../../model/redaction.ts';
import { redactionOf } from '../executions/redaction.ts';
import { encodeJson } from '../../model/json.ts';
import { inOrder, leaseKey, toRefusal } from '../kit/answers.ts';
import { delayTime } from '../kit/kinds.ts';

const BATCH = { maxItems: 500, maxFlights: 3, isItemFault: (error: unknown) => !isPassingTrouble(error) };

type RecordOptions = { executor?: SqlExecutor };
type AnyStep = StepKey & { value?: unknown; durationMs?: number; sleepMs?: number; sleepUntilMs?: number };

const recordOptions = shape<RecordOptions>({ executor: func.optional() });

/** The end of the year 9999. */
const LATEST_MS = 253_402_300_799_999;
const moment = whole(0, LATEST_MS);

/** A sleepMs of undefined is a mistake, not a step without a sleep. */
const newStep = shape<AnyStep>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0).optional(),
  value: parsed.optional(),
  durationMs: whole(0, LIMITS.stepDurationMs).optional(),
  sleepMs: parsed.optional(),
  sleepUntilMs: parsed.optional(),
}).and((step) => {
  const given = (['sleepMs', 'sleepUntilMs', 'value'] as const).filter((name) => name in step);
  if (given.length > 1) return faultAt(`.${given[1]}`, fault(`cannot be combined with ${given[0]}`));
  const [name] = given;
  if (name === undefined || name === 'value') return undefined;
  if ('durationMs' in step) return faultAt('.durationMs', fault(`cannot be combined with ${name}`));
  const found = (name === 'sleepMs' ? delayTime : moment).faultOf(step[name]);
  return found === undefined ? undefined : faultAt(`.${name}`, found);
});

const pauseRequest = shape<PauseRequest>(pauseFields).and(({ wakeInMs, children }) =>
  wakeInMs === undefined && children === undefined
    ? fault('must have wakeInMs, children or both')
    : undefined,
);

const progressShape = shape<Progress>({
  percent: number(0, 100).optional(),
  message: anyString.optional(),
});

export interface Steps {
  record(lease: LeaseRef, step: NewStep, options: RecordOptions): Promise<RecordOutcome>;
  pause(lease: LeaseRef, request: PauseRequest): Promise<PauseOutcome>;
  progress(lease: LeaseRef, progress: Progress): Promise<void>;
  /** Resolves when every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createSteps(context: EngineContext): Steps {
  const records = new Batch<StepRow, RecordOutcome>({
    ...BATCH,
    keyOf: (row) => `${row.uuid}/${row.name}/${row.key}`,
    sizeOf: (row) => row.value?.length ?? 0,
    run: async (rows) => toRecords(rows, await recordSteps(context.database, rows)),
  });
  const pauses = new Batch<PauseRow, PauseOutcome>({
    ...BATCH,
    keyOf: (row) => row.uuid,
    sizeOf: (row) => (row.children?.length ?? 0) * 40,
    run: (rows) => pause(context, rows),
  });
  const reports = new Batch<ProgressRow, void>({
    ...BATCH,
    keyOf: (row) => row.uuid,
    sizeOf: (row) => row.message?.length ?? 0,
    async run(rows) {
      await reportProgress(context.database, rows);
      return rows.map(() => undefined);
    },
  });
  return {
    async record(lease, step, options) {
      const row = stepRow(lease, step);
      const { executor } = recordOptions.check(options, 'options');
      if (executor === undefined) return records.add(row);
      return toRecords([row], await recordStepsInside(context.database, executor, [row]))[0]!;
    },
    pause: async (lease, request) => pauses.add(pauseRow(lease, request)),
    progress: async (lease, progress) => reports.add(progressRow(lease, progress)),
    async settled() {
      await Promise.all([records.settled(), pauses.settled(), reports.settled()]);
    },
  };
}

function stepRow(lease: LeaseRef, step: NewStep): StepRow {
  newStep.check(step, 'step');
  const { name, key = '' } = step;
  const row = { ...leaseKey(lease, 'lease'), name, key, sleepMs: null, durationMs: null };
  if ('sleepMs' in step) return { ...row, kind: 'sleep', sleepMs: step.sleepMs, value: null };
  if ('sleepUntilMs' in step) return { ...row, kind: 'sleep', value: String(step.sleepUntilMs) };
  const value = 'value' in step ? encodeJson(step.value, 'step.value') : null;
  const durationMs = 'durationMs' in step ? (step.durationMs ?? null) : null;
  return { ...row, kind: 'step', value, durationMs };
}

function toRecords(rows: readonly StepRow[], answers: readonly StepAnswer[]): RecordOutcome[] {
  const byOrdinal = new Map(answers.map((answer) => [answer.ordinal, answer]));
  return rows.map((row, index) => {
    const answer = byOrdinal.get(index + 1);
    if (answer === undefined) return refuse('step', 'got no answer from the database', 'invariant_broken');
    if (answer.outcome !== 'recorded') return toRefusal(answer);
    const { name, key } = row;
    return { outcome: 'recorded', repeated: answer.repeated, step: toRecord({ ...answer, name, key }) };
  });
}

function toRecord({ kind, name, key, value, dueInMs }: StoredStep): StepRecord {
  const end = kind === 'wait' ? toWaitEnd(value) : null;
  return { kind, name, key, value: kind === 'wait' ? null : ((value ?? null) as Json), end, dueInMs };
}

/** A wait is stored as soon as it begins. Null stands for an outcome that was cut. */
function toWaitEnd(value: unknown): WaitEnd | null {
  const stored = value as WaitEnd | { outcome: 'pending' } | null;
  return stored === null || stored.outcome === 'pending' ? null : stored;
}

export async function readSteps(context: EngineContext, executionId: string): Promise<StepRecord[]> {
  const rows = await readStored(context.database, parseExecutionId(executionId), LIMITS.steps);
  return rows.map(toRecord);
}

const listOptions = shape<RevealOptions>({ reveal: flag.optional() });

/** All of them, with whole values. */
export async function listSteps(
  context: EngineContext,
  executionId: string,
  options: RevealOptions = {},
): Promise<ListedStep[]> {
  const key = parseExecutionId(executionId);
  const { reveal } = listOptions.check(options, 'options');
  const rows = await listStored(context.database, key, { limit: LIMITS.steps, valueBytes: null });
  const redaction = await redactionOf(context, key, reveal);
  return rows.map((row) => shownStep(toListed(row), redaction));
}

/** For a description: the last ones, with large values cut. */
export async function lastSteps(
  context: EngineContext,
  executionId: string,
  redaction: Redaction | null,
): Promise<LastOf<ListedStep>> {
  const most = LIMITS.describedSteps;
  const window = { limit: most + 1, valueBytes: LIMITS.describedValueBytes };
  const rows = await listStored(context.database, parseExecutionId(executionId), window);
  const items = rows.slice(-most).map((row) => shownStep(toListed(row), redaction));
  return { items, truncated: rows.length > most };
}

/** The time of a sleep is no value. Of a value that was cut, any part may be what is hidden. */
function shownStep(step: ListedStep, redaction: Redaction | null): ListedStep {
  const { kind, value, end, valueStart } = step;
  if (redaction === null || kind === 'sleep') return step;
  return {
    ...step,
    value: kind === 'wait' ? null : shownValue(value, valueStart === null ? redaction : true),
    end: end && shownWait(end, redaction),
    valueStart: valueStart === null ? null : REDACTED,
  };
}

function shownWait(end: WaitEnd, redaction: Redaction): WaitEnd {
  const { signals, message, topic } = end;
  return {
    ...end,
    signals: signals.map((signal) => ({ ...signal, payload: shownValue(signal.payload, redaction) })),
    ...(message && { message: { ...message, payload: shownValue(message.payload, redaction) } }),
    ...(topic && { topic: { ...topic, data: shownValue(topic.data, redaction) } }),
  };
}

function toListed({ valueStart, ...row }: ShownStep): ListedStep {
  const { attemptIndex, recordedAtMs, durationMs, valueBytes } = row;
  const start = valueStart === null ? null : cutText(valueStart, LIMITS.describedValueBytes);
  return { ...toRecord(row), attemptIndex, recordedAtMs, durationMs, valueBytes, valueStart: start };
}

function pauseRow(lease: LeaseRef, request: PauseRequest): PauseRow {
  return { ...leaseKey(lease, 'lease'), ...pauseTerms(pauseRequest.check(request, 'request')) };
}

async function pause(context: EngineContext, rows: PauseRow[]): Promise<PauseOutcome[]> {
  const answers = await pauseExecutions(context.database, rows);
  announce(context, answers);
  return inOrder(rows, answers).map((row): PauseOutcome => {
    if (row.outcome === 'paused') return { outcome: 'paused', repeated: row.repeated };
    return row.outcome === 'due' ? { outcome: 'due' } : toRefusal(row);
  });
}

/** Like a failure report, it must not be refused because of its message: that is truncated. */
function progressRow(lease: LeaseRef, progress: Progress): ProgressRow {
  const { percent, message } = progressShape.check(progress, 'progress');
  return {
    ...leaseKey(lease, 'lease'),
    // Stored as a 4-byte float; a value too small for that becomes 0.
    percent: percent === undefined ? null : Math.fround(percent),
    message: message === undefined ? null : cutText(message, LIMITS.progressBytes),
  };
}
