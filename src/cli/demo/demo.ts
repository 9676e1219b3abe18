/**
 * The demo: a database, three worker processes, a thousand executions, one worker killed in the middle, and proof at the
 * end that nothing was lost. This file has the order of events; the screen and the processes are handled beside it.
 * Processes and server are stopped however it ends.
 */
import { randomUUID } from 'node:crypto';
import { connect } from '../../connect/connect.ts';
import type { Connection } from '../../connect/connection.ts';
import { isEngineError } from '../../contract/errors.ts';
import { startEmbedded } from '../../embedded/index.ts';
import { migrate } from '../../engine/database/migrations/migrate.ts';
import { audit } from './audit.ts';
import { startCrew, stopCrew, type DemoProcess } from './crew.ts';
import { DemoRun } from './run.ts';
import { openScreen, count, seconds, type Screen } from './screen.ts';
import { isClean, nextSteps, verdict } from './verdict.ts';
import { interruption, type Interruption } from '../interruption.ts';

const DEMO_SCHEMA = 'flowfabric_demo';
export const DEMO_EXECUTIONS = { default: 1_000, min: 100, max: 10_000 };
const WORKERS = ['worker-1', 'worker-2', 'worker-3'];
/** The one in the middle of the screen. */
const VICTIM = 'worker-2';

export interface DemoOptions {
  executions: number;
  /** Default: the embedded Postgres. */
  databaseUrl: string | undefined;
  /** NO_COLOR in it turns colours off. */
  env: NodeJS.ProcessEnv;
}

/** Where the demo runs, and its name on the screen. */
interface Base {
  url: string;
  place: string;
}

interface Stage {
  screen: Screen;
  stop: Interruption;
  /** Run in reverse order on the way out. */
  cleanups: (() => Promise<void>)[];
}

/** Runs the whole demonstration and returns the exit code. */
export async function runDemo(options: DemoOptions): Promise<number> {
  const stage: Stage = {
    screen: openScreen(process.stdout, options.env),
    stop: interruption(),
    cleanups: [],
  };
  const { screen, stop } = stage;
  try {
    screen.say([
      ['FlowFabric demo', 'strong'],
      [`  ${count(options.executions)} executions, ${WORKERS.length} worker processes, one gets killed`],
    ]);
    const { isGood, place } = await perform(options, stage).finally(() => cleanAll(stage.cleanups));
    for (const line of nextSteps(place, DEMO_SCHEMA)) screen.say(line);
    return isGood ? 0 : 1;
  } catch (error) {
    screen.settle();
    if (!stop.interrupted.aborted) throw error;
    return stop.exitCode();
  } finally {
    stop.dispose();
  }
}

/** In reverse order; when one fails, the rest are still stopped. */
async function cleanAll(cleanups: readonly (() => Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const cleanUp of cleanups.toReversed()) {
    await cleanUp().catch((error: unknown) => failures.push(error));
  }
  if (failures.length > 0) throw failures[0];
}

/** From the database to the closing table. */
async function perform(options: DemoOptions, stage: Stage): Promise<{ isGood: boolean; place: string }> {
  const { screen, stop, cleanups } = stage;
  const { url, place } = await openBase(options, stage);
  stop.interrupted.throwIfAborted();
  await prepare(url, place, screen);
  const engine = await connect({ databaseUrl: url, schema: DEMO_SCHEMA });
  cleanups.push(() => engine.close());
  const namespace = `demo-${randomUUID()}`;
  const run = new DemoRun({
    engine,
    screen,
    namespace,
    names: WORKERS,
    victim: VICTIM,
    total: options.executions,
  });
  cleanups.push(async () => run.close());
  const crew = await hire(url, namespace, run, stage);
  cleanups.push(() => cancelRest(engine, run, stage));
  await run.untilDone(crew, stop.interrupted);
  run.close();

  screen.say([['Reading every execution back from the database ...', 'dim']]);
  const found = await audit(engine, run.ids);
  stop.interrupted.throwIfAborted();
  for (const line of verdict(found, run)) screen.say(line);
  return { isGood: isClean(found, run), place };
}

async function prepare(url: string, place: string, screen: Screen): Promise<void> {
  try {
    await migrate({ databaseUrl: url, schema: DEMO_SCHEMA });
  } catch (error) {
    if (isEngineError(error) && ['schema_drift', 'schema_newer'].includes(error.code))
      screen.say([
        [`Schema ${DEMO_SCHEMA} in ${place} is from another version. Drop it, then try again.`, 'warn'],
      ]);
    throw error;
  }
}

async function openBase(options: DemoOptions, { screen, cleanups }: Stage): Promise<Base> {
  if (options.databaseUrl !== undefined) {
    const place = `your Postgres (${withoutSecrets(options.databaseUrl)})`;
    screen.say([[`Using ${place}, schema ${DEMO_SCHEMA}`, 'dim']]);
    return { url: options.databaseUrl, place };
  }
  screen.say([['Starting an embedded Postgres; the first time this takes some seconds ...', 'dim']]);
  const startedAt = performance.now();
  const server = await startEmbedded();
  cleanups.push(() => server.stop());
  const took = seconds(performance.now() - startedAt);
  screen.say([[`Postgres ${server.version} runs in ${server.dataDir} (${took})`, 'dim']]);
  return { url: server.url, place: `the Postgres in ${server.dataDir}` };
}

function withoutSecrets(databaseUrl: string): string {
  if (!URL.canParse(databaseUrl)) return 'as given';
  const { host, pathname } = new URL(databaseUrl);
  return `${host}${pathname}`;
}

async function hire(url: string, namespace: string, run: DemoRun, stage: Stage): Promise<DemoProcess[]> {
  stage.stop.interrupted.throwIfAborted();
  const crew = await startCrew({
    names: WORKERS,
    setting: {
      DATABASE_URL: url,
      FLOWFABRIC_DEMO_SCHEMA: DEMO_SCHEMA,
      FLOWFABRIC_DEMO_NAMESPACE: namespace,
    },
    onNews: (worker, news) => run.hear(worker, news),
    onDeath: (worker, reason) => run.died(worker, reason),
  });
  stage.cleanups.push(() => stopCrew(crew));
  stage.stop.interrupted.throwIfAborted();
  stage.screen.say([[`Started ${crew.map(({ name, pid }) => `${name} (pid ${pid})`).join(', ')}`, 'dim']]);
  return crew;
}

/** After an interruption no worker is left to finish them, and the next demo should not have to. */
async function cancelRest(engine: Connection, run: DemoRun, stage: Stage): Promise<void> {
  const rest = run.unreported().map((number) => run.ids[number - 1]!);
  if (!stage.stop.interrupted.aborted || rest.length === 0) return;
  run.close();
  const answers = await engine.cancel(rest, { reason: 'the demo was interrupted', by: 'demo' });
  const cancelled = answers.filter(({ outcome }) => outcome === 'cancelled').length;
  stage.screen.say([[`Interrupted. ${count(cancelled)} executions were cancelled.`, 'warn']]);
}
