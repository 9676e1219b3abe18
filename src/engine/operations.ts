/**
 * The operations of an engine, by noun and verb, and the function behind each. Those that share statements with
 * concurrent calls are parts of the engine; all others are functions of its context.
 */
import type {
  Consumers,
  Events,
  Executions,
  Flows,
  Lanes,
  SigningKeys,
  Streams,
  Topics,
  Upkeep,
  Waitpoints,
  Workers,
} from '../contract/connection.ts';
import type { SubmitOptions, SubmitRequest } from '../contract/executions.ts';
import type { MessageVerbs } from '../contract/messages.ts';
import type { WorkerPort } from '../contract/protocol.ts';
import type { DeliverOutcome, SignalRequest } from '../contract/signals.ts';
import { atOnce, frequent, lasting, type Operations } from './binding.ts';
import { cancelChild, describeChild, sendToChild, signalChild } from './children.ts';
import { describe } from './describe.ts';
import { cancel } from './executions/cancel.ts';
import { claim } from './executions/claiming/claim.ts';
import { watch } from './executions/claiming/watch.ts';
import type { Endings } from './executions/endings.ts';
import { byKey } from './executions/keys.ts';
import { renew, revokeLease } from './executions/leases.ts';
import { result, serverTimeMs, wait } from './executions/reads.ts';
import type { DefaultPolicy } from './executions/submitting/check-request.ts';
import type { Submits } from './executions/submitting/submit.ts';
import { fireDueTimers } from './executions/timers.ts';
import { transact } from './executions/transact.ts';
import { forgetOne, listAll, moveOne } from './feed/consumers.ts';
import type { Feed } from './feed/feed.ts';
import { readKeptChildren } from './families/families.ts';
import { cancelFlow } from './flows/cancel.ts';
import * as flows from './flows/flows.ts';
import { describeFlow, findFlows, listFlows, waitForFlow } from './flows/reads.ts';
import type { EngineContext } from './kit/context.ts';
import { continueAs } from './messages/continue.ts';
import { reply, requestReply, send } from './messages/messages.ts';
import type { MessageDeliveries } from './messages/sending.ts';
import { bulk } from './operator/bulk.ts';
import { explain } from './operator/explain.ts';
import { find, shorten } from './operator/find.ts';
import { listLanes, pauseLane, resumeLane, setLaneEvents } from './operator/lanes.ts';
import { list, listAttempts } from './operator/lists.ts';
import { settled } from './operator/settled.ts';
import { changePriority, replay, setTags } from './operator/verbs.ts';
import { forgetWorker, listWorkers, registerWorker } from './operator/workers.ts';
import { approve, deliverSignal, type SignalDeliveries } from './signals/signals.ts';
import { listSigningKeys, revokeSigningKey, rotateSigningKey } from './signals/signing-keys.ts';
import { suspend } from './signals/suspend.ts';
import { createWaitpoint, issueToken, listWaitpoints, revokeTokens } from './signals/waitpoints.ts';
import { readOrder, type Orders } from './steps/end-order.ts';
import { listSteps, readSteps, type Steps } from './steps/steps.ts';
import { publish, suspendOnTopics } from './topics/topics.ts';
import type { Appends } from './streams/append.ts';
import {
  shownItem,
  shownItems,
  shownOnce,
  shownPage,
  shownSummary,
  shownSummaryItem,
  shownWatchItem,
} from './streams/shown.ts';
import { readStream, readSummary, tailOnce, tailStream, watchSummary } from './streams/streams.ts';
import { readParent, recordForParent } from './streams/parent.ts';
import { watchExecution } from './streams/watch.ts';
import { readPatches, readWritten } from './streams/written.ts';

/** Both faces of an engine: the groups an application uses, and the worker protocol. */
export interface Groups {
  executions: Executions;
  flows: Flows;
  streams: Streams;
  events: Events;
  consumers: Consumers;
  waitpoints: Waitpoints;
  lanes: Lanes;
  workers: Workers;
  signingKeys: SigningKeys;
  upkeep: Omit<Upkeep, 'reports'>;
  topics: Topics;
  signals: { deliver(request: SignalRequest): Promise<DeliverOutcome> };
  messages: MessageVerbs;
  worker: WorkerPort;
}

/** What operations share within one engine. */
export interface Parts {
  endings: Endings;
  submits: Submits;
  steps: Steps;
  orders: Orders;
  appends: Appends;
  deliveries: SignalDeliveries;
  messages: MessageDeliveries;
  feed: Feed;
  defaultPolicy: DefaultPolicy;
}

type ManyVerb<Request> = (
  context: EngineContext,
  ids: readonly string[],
  request: Request,
) => Promise<unknown[]>;

/** Makes a verb on several ids accept a single one, too. */
function oneOrMany<Request>(verb: ManyVerb<Request>) {
  return async (context: EngineContext, id: string | readonly string[], request: Request): Promise<never> => {
    if (Array.isArray(id)) return (await verb(context, id, request)) as never;
    return (await verb(context, [id as string], request))[0] as never;
  };
}

function submitOneOrMany(submits: Submits) {
  return async (
    _: EngineContext,
    request: SubmitRequest | readonly SubmitRequest[],
    options: SubmitOptions = {},
  ): Promise<never> => {
    if (Array.isArray(request)) return (await submits.many(request, options)) as never;
    return (await submits.one(request as SubmitRequest, options)) as never;
  };
}

function flowOperations(defaultPolicy: DefaultPolicy): Operations<Groups>['flows'] {
  return {
    submit: (context, request) => flows.submitFlow(context, request, defaultPolicy),
    create: flows.createFlow,
    addMembers: (context, id, members, options = {}) =>
      flows.addMembers(context, id, members, options, defaultPolicy),
    setJoin: flows.setJoin,
    stageEdges: (context, id, edges, options = {}) => flows.stageEdges(context, id, edges, options),
    applyEdges: flows.applyEdges,
    unstageEdges: flows.unstageEdges,
    seal: (context, id, options = {}) => flows.sealFlow(context, id, options),
    cancel: cancelFlow,
    describe: describeFlow,
    list: listFlows,
    find: findFlows,
    wait: waitForFlow,
  };
}

function workerOperations(parts: Parts): Operations<Groups>['worker'] {
  const { endings, submits, steps, orders, appends, deliveries, messages, defaultPolicy } = parts;
  return {
    claim: frequent(claim),
    renew: frequent(renew),
    complete: (_, lease, value) => endings.complete(lease, value),
    fail: (_, lease, failure) => endings.fail(lease, failure),
    release: (_, lease) => endings.release(lease),
    recordStep: (_, lease, step, options = {}) => steps.record(lease, step, options),
    readSteps,
    recordOrder: (_, lease, order) => orders.record(lease, order),
    readOrder,
    pause: (_, lease, request) => steps.pause(lease, request),
    suspend: (context, lease, request) => suspendOnTopics(context, lease, request, suspend),
    createWaitpoint,
    reply,
    continueAs,
    spawn: (_, lease, requests) => submits.spawn(lease, requests),
    readKeptChildren,
    cancelChild,
    describeChild: (context, lease, id, options) =>
      describeChild(context, lease, id, options) as Promise<never>,
    signalChild: (context, lease, id, waitpoint, request) =>
      signalChild({ context, deliveries }, lease, id, waitpoint, request),
    sendToChild: (context, lease, id, message) =>
      sendToChild({ context, messages, defaultPolicy }, lease, id, message),
    reportProgress: (_, lease, progress) => steps.progress(lease, progress),
    appendFrames: (_, lease, frames, options = {}) => appends.append(lease, frames, options),
    readWritten,
    readPatches,
    readParent,
    recordForParent,
    extendFlow: (context, lease, members) => flows.extendFlow(context, lease, members, defaultPolicy),
    result: (context, id) => result(context, id, { reveal: true }),
    wait: ({ ends }, id, options = {}) => ends.wait(id, options),
    fireTimers: frequent(fireDueTimers),
    watch: atOnce(watch),
    registerWorker: frequent(registerWorker),
    forgetWorker,
    transact: (context, work, options = {}) => transact(context, work, options),
  };
}

/** The table of all operations, in the order of the documentation. */
export function operationsOf(parts: Parts): Operations<Groups> {
  const { submits, deliveries, messages, feed, defaultPolicy } = parts;
  return {
    executions: {
      submit: submitOneOrMany(submits),
      describe,
      byKey,
      result,
      wait,
      settled,
      list,
      find,
      shorten,
      listAttempts,
      listSteps,
      explain,
      cancel: oneOrMany(cancel),
      replay: oneOrMany(replay),
      changePriority: oneOrMany(changePriority),
      setTags,
      revokeLease,
      bulk: atOnce(bulk),
    },
    flows: flowOperations(defaultPolicy),
    streams: {
      read: shownOnce(readStream, shownPage),
      tail: atOnce(shownItems(tailStream, shownItem)),
      tailOnce: shownOnce(tailOnce, shownPage),
      readSummary: shownOnce(readSummary, shownSummary),
      watchSummary: atOnce(shownItems(watchSummary, shownSummaryItem)),
      watch: atOnce(shownItems(watchExecution, shownWatchItem)),
    },
    events: {
      subscribe: lasting((_, options) => feed.subscribe(options)),
      subscribeCompletions: lasting((_, options) => feed.subscribeCompletions(options)),
      subscribeLeaseHistory: lasting((_, options) => feed.subscribeLeaseHistory(options)),
      consume: lasting((_, name, handler, options) => feed.consume(name, handler, options)),
    },
    consumers: { list: listAll, move: moveOne, forget: forgetOne },
    waitpoints: {
      list: listWaitpoints,
      approve: (context, id, waitpoint, request) => approve({ context, deliveries }, id, waitpoint, request),
      issueToken,
      revokeTokens,
    },
    lanes: { list: listLanes, pause: pauseLane, resume: resumeLane, setEvents: setLaneEvents },
    workers: { list: listWorkers },
    signingKeys: { list: listSigningKeys, rotate: rotateSigningKey, revoke: revokeSigningKey },
    upkeep: { serverTimeMs },
    topics: { publish },
    signals: { deliver: (context, request) => deliverSignal({ context, deliveries }, request) },
    messages: {
      send: (context, id, mailbox, payload, options = {}) =>
        send({ context, messages, defaultPolicy }, id, mailbox, payload, options),
      request: (context, id, mailbox, payload, options = {}) =>
        requestReply({ context, messages, defaultPolicy }, id, mailbox, payload, options) as Promise<never>,
    },
    worker: workerOperations(parts),
  };
}
