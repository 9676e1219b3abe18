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
      walRecords: 8,
      walBytes: 940,
      buffers: 16,
      why: 'execution, queue row, one tag and their keys, the time of the execution for lists',
    },
    batched: { walRecords: 8, walBytes: 950, buffers: 12, why: 'the same rows; heap rows share records' },
  },
  claim: {
    single: {
      walRecords: 11,
      walBytes: 1_025,
      buffers: 32,
      why: 'two locks, state and lease in one update, queue delete, the claim and its two keys, event and its two keys',
    },
    batched: {
      walRecords: 4.5,
      walBytes: 410,
      buffers: 10.5,
      why: 'the same rows, but one claim and one row of the log for all',
    },
  },
  renew: {
    single: {
      walRecords: 6,
      walBytes: 500,
      buffers: 19,
      why: 'lock, update of the row, event and its two keys',
    },
    batched: {
      walRecords: 2.4,
      walBytes: 180,
      buffers: 9.1,
      why: 'lock, update of the row, its claim for the event; one row of the log for all',
    },
  },
  record: {
    single: { walRecords: 5, walBytes: 385, buffers: 10, why: 'a share of the lease, the step and its key' },
    batched: { walRecords: 4.6, walBytes: 410, buffers: 14.4, why: 'the same rows' },
  },
  append: {
    single: {
      walRecords: 6,
      walBytes: 945,
      buffers: 10,
      why: 'a share of the lease, the row of the stream, the frame and its key',
    },
    batched: {
      walRecords: 6,
      walBytes: 1_000,
      buffers: 14.1,
      why: 'the same rows; that of the stream is locked first',
    },
  },
  complete: {
    single: {
      walRecords: 9,
      walBytes: 920,
      buffers: 22,
      why: 'one lock, state and lease in one update, the attempt with its key and its place in lists, event and its two keys',
    },
    batched: {
      walRecords: 5.6,
      walBytes: 595,
      buffers: 13.5,
      why: 'the same rows, but one row of the log for all, and a check for flows',
    },
  },
};
