/**
 * A flow as it must behave, in memory: what each outcome decides for the members after it, which losers are stopped,
 * and how the flow finishes. It knows the rules of the model and nothing of the database.
 */
import type { EdgeCondition, EdgeState, GroupState, JoinPolicy } from '../../../src/contract/flows.ts';
import { cancelsRest, edgeResult, joinState } from '../../../src/model/joins.ts';

export type End = 'success' | 'failed' | 'cancelled' | 'expired' | 'skipped';
export interface PlannedEdge {
  from: string;
  on: EdgeCondition;
}
export interface PlannedMember {
  name: string;
  after: PlannedEdge[];
  join: JoinPolicy;
}

interface Edge extends PlannedEdge {
  to: string;
  state: EdgeState;
}
interface Join {
  policy: JoinPolicy;
  state: GroupState;
  /** Upstream members that nothing waits for any more, until they are stopped. */
  losers: string[];
}
interface Member {
  state: 'blocked' | 'ready' | End;
  /** Its outcome was propagated to the members after it. */
  isTold: boolean;
  isLoser: boolean;
}

export class FlowModel {
  readonly #members = new Map<string, Member>();
  readonly #edges: Edge[] = [];
  readonly #joins = new Map<string, Join>();

  constructor(plan: readonly PlannedMember[]) {
    for (const { name, after, join } of plan) {
      const state = after.length === 0 ? 'ready' : 'blocked';
      this.#members.set(name, { state, isTold: false, isLoser: false });
      if (after.length > 0) this.#joins.set(name, { policy: join, state: 'pending', losers: [] });
      this.#edges.push(...after.map((edge): Edge => ({ ...edge, to: name, state: 'pending' })));
    }
  }

  states(): Record<string, string> {
    return Object.fromEntries([...this.#members].map(([name, { state }]) => [name, state]));
  }

  /** Finishes an open member, with all consequences. */
  end(name: string, end: End): void {
    this.#members.get(name)!.state = end;
    // A completion or failure propagates in the same transaction, before any loser is stopped.
    if (end === 'success' || end === 'failed') this.#tell([name]);
    for (;;) {
      const stopped = this.#stopLosers();
      const told = this.#tellAll();
      if (!stopped && !told) return;
    }
  }

  /**
   * Runs a finished member again, whatever the state of its join. Members skipped because of it wait again, if their
   * join may still be satisfied.
   */
  replay(name: string): void {
    const own = this.#joins.get(name);
    if (own !== undefined) own.state = 'satisfied';
    this.#members.set(name, { state: 'ready', isTold: false, isLoser: false });
    const open = [name];
    for (const one of open) {
      const taken = this.#edges.filter(
        ({ from, to, state }) =>
          from === one && state !== 'pending' && this.#joins.get(to)!.state !== 'satisfied',
      );
      for (const edge of taken) edge.state = 'pending';
      for (const { to } of taken) {
        const join = this.#joins.get(to)!;
        if (join.state !== 'impossible' || this.#judge(to, join) !== 'pending') continue;
        join.state = 'pending';
        if (this.#members.get(to)!.state !== 'skipped') continue;
        this.#members.set(to, { state: 'blocked', isTold: false, isLoser: false });
        open.push(to);
      }
    }
  }

  #tellAll(): boolean {
    let isAny = false;
    for (;;) {
      const untold = [...this.#members].filter(([, { state, isTold }]) => isEnd(state) && !isTold);
      if (untold.length === 0) return isAny;
      this.#tell(untold.map(([name]) => name));
      isAny = true;
    }
  }

  #tell(names: readonly string[]): void {
    for (const name of names) {
      const member = this.#members.get(name)!;
      member.isTold = true;
      for (const edge of this.#edges)
        if (edge.from === name && edge.state === 'pending')
          edge.state = edgeResult(edge.on, member.state as End);
    }
    for (const [name, join] of this.#joins) if (join.state === 'pending') this.#decide(name, join);
  }

  #judge(name: string, { policy }: Join): GroupState {
    const into = this.#edges.filter(({ to }) => to === name);
    const count = (...states: EdgeState[]) => into.filter(({ state }) => states.includes(state)).length;
    return joinState(policy, {
      edges: into.length,
      satisfied: count('satisfied'),
      unmet: count('failed', 'skipped'),
    });
  }

  #decide(name: string, join: Join): void {
    join.state = this.#judge(name, join);
    if (join.state === 'pending') return;
    const member = this.#members.get(name)!;
    if (member.state === 'blocked') member.state = join.state === 'satisfied' ? 'ready' : 'skipped';
    if (cancelsRest(join.policy)) join.losers = this.#pendingBefore(name);
  }

  #pendingBefore(name: string): string[] {
    return this.#edges.filter(({ to, state }) => to === name && state === 'pending').map(({ from }) => from);
  }

  /** Except those that another join still waits for. What only a loser needed is stopped in the next round. */
  #stopLosers(): boolean {
    const deciding = [...this.#joins.values()].filter(({ losers }) => losers.length > 0);
    for (const join of deciding)
      for (const name of join.losers.splice(0).filter((loser) => !this.#isNeeded(loser))) this.#lose(name);
    return deciding.length > 0;
  }

  #lose(name: string): void {
    const member = this.#members.get(name)!;
    if (!isEnd(member.state)) Object.assign(member, { state: 'cancelled', isLoser: true });
    const join = this.#joins.get(name);
    if (join?.state !== 'pending') return;
    join.state = 'impossible';
    join.losers = this.#pendingBefore(name);
  }

  #isNeeded(name: string): boolean {
    return this.#edges.some(
      ({ from, to, state }) =>
        from === name &&
        state === 'pending' &&
        this.#joins.get(to)!.state === 'pending' &&
        !isEnd(this.#members.get(to)!.state),
    );
  }

  /**
   * Completed when no last member failed or was skipped because of a failure. A last member has no outgoing edge that
   * is on success or satisfied.
   */
  outcome(): 'completed' | 'failed' {
    const last = [...this.#members.keys()].filter(
      (name) =>
        !this.#edges.some(
          ({ from, on, state }) => from === name && (on === 'success' || state === 'satisfied'),
        ),
    );
    return last.some((name) => this.#isBad(name)) ? 'failed' : 'completed';
  }

  #isBad(name: string): boolean {
    const { state, isLoser } = this.#members.get(name)!;
    if (state === 'skipped') return this.#isSkippedByFailure(name);
    return state !== 'success' && !isLoser;
  }

  #isSkippedByFailure(name: string): boolean {
    const into = this.#edges.filter(({ to }) => to === name);
    return into.some(
      ({ from, on, state }) =>
        state === 'failed' || (on === 'success' && state === 'skipped' && this.#isSkippedByFailure(from)),
    );
  }
}

export function isEnd(state: string): state is End {
  return state !== 'blocked' && state !== 'ready';
}
