/**
 * What an operation may cost per execution: WAL records and bytes, and buffers touched. None of these depends on the
 * machine's load. A statement that outgrows its budget should be noticed the day it is written; raise a number only
 * with its reason. Measured values are about 10 % below.
 */
export interface Budget {
  walRecords: number;
  walBytes: number;
  buffers: number;
  /** Which writes these are. */
  why: string;
}

export interface OperationBudget {
  /** One execution per call. */
  single: Budget;
  /** One hundred executions per call; the cost of each. */
  batched: Budget;
}

export const BUDGETS: Record<
  'submit' | 'claim' | 'renew' | 'record' | 'append' | 'complete',
  OperationBudget
> = {
  submit: {
    single: {
      walRecords: 10,
      walBytes: 1_090,
      buffers: 45,
      why: 'execution, queue row, one tag and their keys, the time of the execution for lists',
    },
    batched: { walRecords: 10, walBytes: 1_110, buffers: 15, why: 'the same rows; heap rows share records' },
  },
  claim: {
    single: {
      walRecords: 10,
      walBytes: 1_010,
      buffers: 62,
      why: 'two locks, state update, queue delete, lease, event and its two keys',
    },
    batched: {
      walRecords: 7,
      walBytes: 710,
      buffers: 18,
      why: 'the same rows, but one row of the log for all events; the header lookups are shared',
    },
  },
  renew: {
    single: {
      walRecords: 6,
      walBytes: 500,
      buffers: 22,
      why: 'lock, update of the row, event and its two keys',
    },
    batched: {
      walRecords: 3,
      walBytes: 200,
      buffers: 9,
      why: 'lock, update of the row, its claim for the event; one row of the log for all',
    },
  },
  record: {
    single: { walRecords: 5, walBytes: 375, buffers: 10, why: 'a share of the lease, the step and its key' },
    batched: { walRecords: 5, walBytes: 385, buffers: 14, why: 'the same rows' },
  },
  append: {
    single: {
      walRecords: 5,
      walBytes: 940,
      buffers: 10,
      why: 'a share of the lease, the row of the stream, the frame and its key',
    },
    batched: {
      walRecords: 8,
      walBytes: 1_130,
      buffers: 18,
      why: 'the same rows; that of the stream is locked first, and leaves its page while a snapshot is held (else 5.5, 920, 12)',
    },
  },
  complete: {
    single: {
      walRecords: 11,
      walBytes: 1_070,
      buffers: 48,
      why: 'two locks, state update, lease delete, the attempt with its key and its place in lists, event, a check for flows',
    },
    batched: {
      walRecords: 11,
      walBytes: 1_090,
      buffers: 25,
      why: 'the same rows, but one row of the log for all events',
    },
  },
};
