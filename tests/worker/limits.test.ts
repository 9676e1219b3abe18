/**
 * Limits of a task, of a lane and of the worker itself: none is ever exceeded, each is fully used while there is work,
 * and a task that waits for its limit blocks no other.
 */
import { describe, expect, test } from 'vitest';
import type { ClaimRequest } from '../../src/contract/protocol.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle, type TaskHandler } from '../../src/define/handlers.ts';
import { latch, newKind, resultOf, SOON, useCrew } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';

const crew = useCrew();

/** Runs that stay until they are released, counted by name. */
class Gate {
  readonly #waiting: { name: string; leave: () => void }[] = [];
  readonly #most = new Map<string, number>();

  async enter(name: string): Promise<void> {
    const door = latch();
    this.#waiting.push({ name, leave: door.open });
    this.#most.set(name, Math.max(this.most(name), this.inside(name)));
    this.#most.set('all', Math.max(this.most('all'), this.inside()));
    await door.opened;
  }

  inside(name?: string): number {
    return this.#waiting.filter((each) => name === undefined || each.name === name).length;
  }

  most(name: string): number {
    return this.#most.get(name) ?? 0;
  }

  /** Releases the first run of that name. */
  leave(name: string): void {
    const index = this.#waiting.findIndex((each) => each.name === name);
    this.#waiting.splice(index, 1)[0]!.leave();
  }

  leaveAll(): void {
    for (const { leave } of this.#waiting.splice(0)) leave();
  }
}

function gated(
  gate: Gate,
  kind: string,
  concurrency?: number,
  nameOf = (ctx: TaskContext) => ctx.kind,
): TaskHandler {
  return handle(
    task(kind),
    (_, ctx) => gate.enter(nameOf(ctx)),
    concurrency === undefined ? {} : { concurrency },
  );
}

const many = (count: number, request: { kind: string; lane?: string }) =>
  Array.from({ length: count }, () => request);

describe('the limit of a task', () => {
  test('is never exceeded and always used, one run replacing another', async () => {
    const engine = await crew.connect();
    const [few, free] = [newKind(), newKind()];
    const gate = new Gate();
    const worker = crew.work(engine, {
      concurrency: 10,
      handlers: [gated(gate, few, 2), gated(gate, free)],
    });
    await engine.executions.submit(many(8, { kind: few }));
    for (let done = 0; done < 8; done += 1) {
      await expect.poll(() => gate.inside(few), SOON).toBe(Math.min(2, 8 - done));
      gate.leave(few);
      await expect.poll(() => worker.stats.completed, SOON).toBe(done + 1);
    }
    expect(gate.most(few)).toBe(2);
  });

  test('blocks no other task, although the queue starts with its own', async () => {
    const engine = await crew.connect();
    const [few, free] = [newKind(), newKind()];
    const gate = new Gate();
    crew.work(engine, { concurrency: 5, handlers: [gated(gate, few, 1), gated(gate, free)] });
    await engine.executions.submit([...many(20, { kind: few }), ...many(4, { kind: free })]);
    await expect.poll(() => [gate.inside(few), gate.inside(free)], SOON).toEqual([1, 4]);
    expect(gate.most('all')).toBe(5);
    gate.leaveAll();
  });

  test('leaves work to another process that has a free slot', async () => {
    const [here, there] = [await crew.connect(), await crew.connect()];
    const kind = newKind();
    const gate = new Gate();
    const handlers = [gated(gate, kind, 1), gated(gate, newKind())];
    const first = crew.work(here, { handlers });
    const warm = await here.executions.submit({ kind });
    await expect.poll(() => gate.inside(kind), SOON).toBe(1);
    gate.leave(kind);
    await expect.poll(() => resultOf(here, warm.executionId), SOON).toBe('success');
    await here.executions.submit({ kind });
    await expect.poll(() => first.running, SOON).toBe(1);
    const second = crew.work(there, { handlers });
    await expect.poll(() => second.health().lastClaimAgoMs, SOON).not.toBeNull();
    // Both poll once an hour: only a hint can bring this to the second worker.
    await here.executions.submit({ kind });
    await expect.poll(() => second.running, SOON).toBe(1);
    gate.leaveAll();
  });

  test('is kept when a claim returns more than was requested', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const gate = new Gate();
    const greedy = {
      ...workerPort(engine),
      claim: (request: ClaimRequest) => workerPort(engine).claim({ ...request, limit: request.limit + 3 }),
    };
    const worker = crew.work(greedy, { handlers: [gated(gate, kind, 2)] });
    await engine.executions.submit(many(6, { kind }));
    for (let done = 0; done < 6; done += 1) {
      await expect.poll(() => gate.inside(kind), SOON).toBeGreaterThan(0);
      gate.leave(kind);
    }
    await expect.poll(() => worker.stats.completed, SOON).toBe(6);
    expect(gate.most(kind)).toBe(2);
  });
});

describe('the limit of a lane', () => {
  test('is never exceeded and always used, and the other lanes continue', async () => {
    const engine = await crew.connect();
    const [kind, other] = [newKind(), newKind()];
    const gate = new Gate();
    const byLane = (ctx: TaskContext) => ctx.lane;
    const worker = crew.work(engine, {
      concurrency: 10,
      lanes: [{ lane: 'narrow', concurrency: 2 }, 'wide'],
      handlers: [gated(gate, kind, undefined, byLane), gated(gate, other, undefined, byLane)],
    });
    await engine.executions.submit([
      ...many(3, { kind, lane: 'narrow' }),
      ...many(3, { kind: other, lane: 'narrow' }),
      ...many(4, { kind, lane: 'wide' }),
    ]);
    await expect.poll(() => [gate.inside('narrow'), gate.inside('wide')], SOON).toEqual([2, 4]);
    for (let done = 0; done < 6; done += 1) {
      await expect.poll(() => gate.inside('narrow'), SOON).toBe(Math.min(2, 6 - done));
      gate.leave('narrow');
      await expect.poll(() => worker.stats.completed, SOON).toBe(done + 1);
    }
    expect(gate.most('narrow')).toBe(2);
    gate.leaveAll();
  });
});

describe('limits of tasks, lanes and the worker together', () => {
  test('all hold at once, and a slot goes to any task that may use it', async () => {
    const engine = await crew.connect();
    const [few, free] = [newKind(), newKind()];
    const gate = new Gate();
    const byBoth = (ctx: TaskContext) => `${ctx.kind}/${ctx.lane}`;
    const worker = crew.work(engine, {
      concurrency: 5,
      lanes: [{ lane: 'narrow', concurrency: 3 }, 'wide'],
      handlers: [gated(gate, few, 2, byBoth), gated(gate, free, undefined, byBoth)],
    });
    await engine.executions.submit(
      [few, free].flatMap((kind) => [
        ...many(10, { kind, lane: 'narrow' }),
        ...many(10, { kind, lane: 'wide' }),
      ]),
    );
    const sum = (part: string) =>
      [few, free]
        .flatMap((kind) => [`${kind}/narrow`, `${kind}/wide`])
        .filter((name) => name.includes(part))
        .reduce((total, name) => total + gate.inside(name), 0);
    for (let done = 0; done < 40; done += 1) {
      const left = 40 - done;
      // Towards the end all remaining work may be under one limit.
      await expect.poll(() => gate.inside(), SOON).toBeGreaterThanOrEqual(left >= 25 ? 5 : 1);
      expect(sum(few)).toBeLessThanOrEqual(2);
      expect(sum('/narrow')).toBeLessThanOrEqual(3);
      const fullest = [`${few}/narrow`, `${few}/wide`, `${free}/narrow`, `${free}/wide`].toSorted(
        (a, b) => gate.inside(b) - gate.inside(a),
      )[0]!;
      gate.leave(fullest);
      await expect.poll(() => worker.stats.completed, SOON).toBe(done + 1);
    }
    expect(gate.most('all')).toBe(5);
  });

  test('work that was announced while a shared limit was used up starts when there is room', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const gate = new Gate();
    crew.work(engine, {
      lanes: [
        { lane: 'one', concurrency: 5 },
        { lane: 'two', concurrency: 5 },
      ],
      handlers: [gated(gate, kind, 1, (ctx) => ctx.lane), gated(gate, newKind())],
    });
    await engine.executions.submit({ kind, lane: 'one' });
    await expect.poll(() => gate.inside('one'), SOON).toBe(1);
    await engine.executions.submit({ kind, lane: 'two' });
    expect(gate.inside('two')).toBe(0);
    gate.leave('one');
    await expect.poll(() => gate.inside('two'), SOON).toBe(1);
    gate.leaveAll();
  });

  test('no task is starved: with one slot for several backlogs, each gets its turn', async () => {
    const engine = await crew.connect();
    const kinds = [newKind(), newKind(), newKind()];
    const order: string[] = [];
    const handlers = kinds.map((kind, index) =>
      handle(task(kind), (_, ctx) => void order.push(ctx.kind), index === 0 ? {} : { concurrency: 1 }),
    );
    await engine.executions.submit(kinds.flatMap((kind) => many(20, { kind })));
    const worker = crew.work(engine, { concurrency: 1, handlers });
    await expect.poll(() => worker.stats.completed, SOON).toBe(60);
    for (const kind of kinds)
      expect(order.slice(0, 30).filter((each) => each === kind).length).toBeGreaterThan(5);
  });
});
