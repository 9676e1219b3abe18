/**
 * `flowfabric consumers` against a real database: what is listed about each consumer, moving one and forgetting one.
 * The command in front of the feed is tested with events.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connect, encodeCursor, type Connection, type FeedEvent } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand } from './processes.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';
const MEMBERS = [
  'name',
  'cursor',
  'position',
  'lag',
  'lagMs',
  'holder',
  'movedAtMs',
  'failures',
  'errorCode',
];

let database: TestDatabase;
let engine: Connection;

beforeEach(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url });
});

afterEach(async () => {
  await engine?.close();
  await database?.drop();
});

function consumers(...args: string[]) {
  return runCommand({ args: ['consumers', ...args], databaseUrl: database.url });
}

async function pause(...lanes: string[]): Promise<FeedEvent[]> {
  for (const lane of lanes) await engine.lanes.pause(lane);
  const events: FeedEvent[] = [];
  const subscription = await engine.events.subscribe({ from: 'beginning', until: 'now' });
  for await (const event of subscription) if (event.type !== 'disconnected') events.push(event);
  return events;
}

/** A consumer that has passed every event, and that no process reads for any more. */
async function enter(name: string): Promise<void> {
  const consumer = await engine.events.consume(name, async () => {}, { from: 'now' });
  await consumer.stop();
}

describe('flowfabric consumers', () => {
  it('lists position, lag and holder of each', async () => {
    expect(await consumers('list')).toEqual({
      exitCode: 0,
      output: '',
      errors: expect.stringContaining('there is no consumer yet.'),
    });
    const [first] = await pause('a', 'b');
    const at = first!.position - 1n;
    await using failing = await engine.events.consume('billing', () => Promise.reject(new Error('no')), {
      onError: () => undefined,
    });
    await expect.poll(async () => (await engine.consumers.list())[0]?.failures, PATIENCE).toBeGreaterThan(0);
    const table = await consumers();
    expect(table).toMatchObject({ exitCode: 0, errors: '' });
    const [heading, row] = table.output.trimEnd().split('\n');
    expect(heading).toMatch(/^CONSUMER +POSITION +CURSOR +LAG +BEHIND +MOVED +HOLDER +FAILURES +ERROR$/);
    const place = `${at} +${encodeCursor(at)}`;
    expect(row).toMatch(new RegExp(`^billing +${place} +2 +\\d+\\w+ +\\d+\\w+ +\\S+ +[1-9]\\d* +\\S+$`));
    const { output } = await consumers('--json');
    const listed = JSON.parse(output) as object;
    expect(listed).toMatchObject({
      name: failing.name,
      lag: '2',
      position: String(at),
      cursor: encodeCursor(at),
    });
    expect(Object.keys(listed).toSorted()).toEqual(MEMBERS.toSorted());
  });

  it('forgets one', async () => {
    await enter('billing');
    expect(await consumers('forget', 'billing')).toEqual({
      exitCode: 0,
      output: 'billing  forgotten\n',
      errors: '',
    });
    const gone = await consumers('forget', 'billing');
    expect(gone).toMatchObject({ exitCode: 3, output: '' });
    expect(gone.errors).toContain('There is no consumer billing. [not_found]');
    expect(await engine.consumers.list()).toEqual([]);
  });

  it('moves one to the beginning, to a cursor and to now, and prints its lag', async () => {
    const [first, second, third] = (await pause('a', 'b', 'c')) as [FeedEvent, FeedEvent, FeedEvent];
    await enter('billing');
    const places = [
      ['beginning', first.position - 1n, '3 events'],
      [second.cursor, second.position, '1 event'],
      ['now', third.position, '0 events'],
    ] as const;
    for (const [to, position, behind] of places) {
      const place = `to position ${position} (${encodeCursor(position)})`;
      expect(await consumers('move', 'billing', '--to', to)).toEqual({
        exitCode: 0,
        output: `billing  moved  ${place}, ${behind} behind\n`,
        errors: '',
      });
      expect(await engine.consumers.list()).toMatchObject([{ name: 'billing', position }]);
    }
  });

  it('prints the moved consumer as an object with --json', async () => {
    const [first] = await pause('a', 'b');
    await enter('billing');
    const { exitCode, output } = await consumers('move', 'billing', '--to', first!.cursor, '--json');
    expect(exitCode).toBe(0);
    const moved = JSON.parse(output) as object;
    expect(moved).toMatchObject({
      name: 'billing',
      outcome: 'moved',
      position: String(first!.position),
      lag: '1',
    });
    expect(Object.keys(moved).toSorted()).toEqual([...MEMBERS, 'outcome'].toSorted());
  });

  it('reports a consumer that does not exist', async () => {
    const { exitCode, output, errors } = await consumers('move', 'nobody', '--to', 'now');
    expect({ exitCode, output }).toEqual({ exitCode: 3, output: '' });
    expect(errors).toContain('There is no consumer nobody. [not_found]');
  });

  it('refuses a cursor whose events are gone, or are not there yet, and moves nothing', async () => {
    const events = await pause('a', 'b', 'c');
    await enter('bill ing');
    const { position } = events.at(-1)!;
    await database.query('UPDATE ff_sequencer SET floor_position = $1', [String(position)]);
    const move = ['move', 'bill ing', '--to'];
    const expired = await consumers(...move, encodeCursor(position - 2n));
    expect(expired).toMatchObject({ exitCode: 1, output: '' });
    expect(expired.errors).toContain('--to is position');
    expect(expired.errors).toContain(
      `are no longer kept. Move it to what is left with: flowfabric consumers move 'bill ing' --to beginning [cursor_expired]`,
    );
    const ahead = await consumers(...move, encodeCursor(2n ** 62n));
    expect(ahead).toMatchObject({ exitCode: 1, output: '' });
    expect(ahead.errors).toMatch(/^flowfabric: --to is position .* \[cursor_ahead\]$/m);
    expect(await engine.consumers.list()).toMatchObject([{ position }]);
    const left = await consumers(...move, 'beginning');
    expect(left.output).toContain('1 event behind');
  });

  it.each([
    [['move', ''], 'name'],
    [['forget', ''], 'name'],
    [['move', 'a\nb'], 'name must be a string of 1 to 128 printable ASCII characters'],
  ])('refuses a name such as %j as a usage error', async (args, sentence) => {
    const to = args[0] === 'move' ? ['--to', 'now'] : [];
    const { exitCode, output, errors } = await consumers(...args, ...to);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(`flowfabric: ${sentence}`);
    expect(errors).toContain('[usage]');
  });
});

describe('an invalid position to move to', () => {
  const HINT = 'a cursor is what events tail printed or event.cursor contains; or use now or beginning';

  it.each([
    ['', '--to is empty: use now or beginning.', HINT],
    ['42', '--to has digits only.', `this is a position, not a cursor; ${HINT}`],
    ['yesterday', '--to is not base64url.', HINT],
  ])('such as %j is refused with a hint, before the database is asked', async (to, message, hint) => {
    const args = ['consumers', 'move', 'billing', '--to', to, '--json'];
    const { exitCode, output, errors } = await runCommand({ args, databaseUrl: NOWHERE });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(JSON.parse(errors)).toEqual({ error: { code: 'invalid_cursor', message, hint } });
  });
});
