/**
 * The worker protocol: the calls a worker makes. For your own workers, other transports, and tests that act as a
 * worker. Applications use the main entry.
 */
export { workerPort } from '../connect/port.ts';
export { runWorker } from '../worker/worker.ts';
export type {
  Claim,
  ClaimRequest,
  ClaimResult,
  CompleteOutcome,
  Failure,
  FailOutcome,
  FireOptions,
  Hint,
  HintWatcher,
  Interest,
  LeaseRef,
  LeaseRefusal,
  ReleaseOutcome,
  RenewOutcome,
  WorkerPort,
  WorkerRegistration,
} from '../contract/protocol.ts';
export type {
  ChildRequest,
  EndOrder,
  NewStep,
  OrderOutcome,
  PauseOutcome,
  PauseRequest,
  RecordOutcome,
  SpawnOutcome,
  StepKey,
} from '../contract/steps.ts';
export type { ContinueOutcome, ReplyOutcome, ReplyRequest } from '../contract/messages.ts';
export type {
  CreateWaitpointOutcome,
  SuspendOutcome,
  SuspendRequest,
  WaitpointRequest,
  WaitRequest,
} from '../contract/signals.ts';
export type {
  AppendOptions,
  AppendOutcome,
  BestEffortOptions,
  FrameRequest,
  OutputSource,
  ParentChange,
  ParentState,
  ParentStep,
  WrittenFrame,
  WrittenOutput,
  WrittenPatch,
  WrittenPatches,
} from '../contract/streams.ts';
