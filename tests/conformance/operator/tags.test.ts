/**
 * Changing the tags of an execution: what is stored, what finds it, which event is written, and where the old tags
 * remain visible. Listing by tags is tested with the lists; these tests check only the rows behind it.
 */
import { describe, expect, it } from 'vitest';
import type { ExecutionId } from '../../../src/index.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);

async function tagRows(id: ExecutionId): Promise<Record<string, string>> {
  const found = await bench.database.query<{ tag_key: string; tag_value: string }>(
    `SELECT g.tag_key, g.tag_value FROM ff_tag g JOIN ff_execution e USING (execution_id)
     WHERE g.execution_id = $1 AND g.created_at_ms = e.created_at_ms AND g.partition_key = e.partition_key`,
    [uuidOf(id)],
  );
  return Object.fromEntries(found.rows.map((row) => [row.tag_key, row.tag_value]));
}

async function tagEvents(id: ExecutionId): Promise<unknown[]> {
  const found = await bench.database.query(
    `SELECT event_type, tags, detail FROM ff_event WHERE execution_id = $1 AND family = 'tag' ORDER BY ev_id`,
    [uuidOf(id)],
  );
  return found.rows;
}

const manyTags = (count: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`tag-${index}`, 'x']));

describe('tags', () => {
  it('are added, replaced and removed in one call, and only the new ones find the execution', async () => {
    const executionId = await bench.submit({ tags: { team: 'a', stage: 'one', owner: 'ann' } });
    const tags = { team: 'b', owner: 'ann', region: 'eu' };
    expect(
      await bench.engine.executions.setTags(executionId, {
        set: { team: 'b', region: 'eu' },
        remove: ['stage'],
      }),
    ).toEqual({ outcome: 'set', tags });
    expect((await bench.snapshot(executionId)).tags).toEqual(tags);
    expect(await tagRows(executionId)).toEqual(tags);
  });

  it('are reported as an event with who changed what, and not when nothing changed', async () => {
    const executionId = await bench.submit({ tags: { team: 'a' } });
    await bench.engine.executions.setTags(executionId, { set: { team: 'b' }, remove: ['none'], by: 'ann' });
    expect(
      await bench.engine.executions.setTags(executionId, { set: { team: 'b' }, remove: ['none'] }),
    ).toEqual({
      outcome: 'set',
      tags: { team: 'b' },
    });
    expect(await tagEvents(executionId)).toEqual([
      {
        event_type: 'tags_changed',
        tags: { team: 'b' },
        detail: { by: 'ann', set: { team: 'b' }, removed: ['none'] },
      },
    ]);
  });

  it('that are both removed and set are set', async () => {
    const executionId = await bench.submit({ tags: { team: 'a' } });
    expect(
      await bench.engine.executions.setTags(executionId, { set: { team: 'b' }, remove: ['team'] }),
    ).toEqual({
      outcome: 'set',
      tags: { team: 'b' },
    });
    expect(await tagRows(executionId)).toEqual({ team: 'b' });
  });

  it('may have an empty value, and those of tracing are kept but not listed', async () => {
    const executionId = await bench.submit({ tags: { traceparent: '00-1' } });
    expect(await tagRows(executionId)).toEqual({});
    const { outcome } = await bench.engine.executions.setTags(executionId, { set: { empty: '' } });
    expect(outcome).toBe('set');
    expect(await tagRows(executionId)).toEqual({ empty: '' });
    expect((await bench.snapshot(executionId)).tags).toEqual({
      traceparent: '00-1',
      empty: '',
    });
    await expect(
      bench.engine.executions.setTags(executionId, { set: { tracestate: 'x=1' } }),
    ).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'set.tracestate',
    });
  });

  it('are seen by the next lease, while the current one keeps those it started with', async () => {
    const claim = await bench.running({ tags: { team: 'a' } });
    await bench.engine.executions.setTags(claim.executionId, { set: { team: 'b' } });
    await bench.port.release(claim);
    const events = await bench.database.query<{ event_type: string; team: string }>(
      `SELECT event_type, tags ->> 'team' AS team FROM ff_event WHERE execution_id = $1 ORDER BY ev_id`,
      [uuidOf(claim.executionId)],
    );
    expect(events.rows.map(({ event_type, team }) => `${event_type} ${team}`)).toEqual([
      'acquired a',
      'tags_changed b',
      'released a',
    ]);
    expect((await bench.claimOne(claim.kind)).tags).toEqual({ team: 'b' });
  });

  it('can be changed after the execution has finished', async () => {
    const claim = await bench.running({ tags: { team: 'a' } });
    await bench.port.complete(claim);
    expect(await bench.engine.executions.setTags(claim.executionId, { remove: ['team'] })).toEqual({
      outcome: 'set',
      tags: {},
    });
    expect(await tagRows(claim.executionId)).toEqual({});
  });

  it('changed by two callers concurrently are both changed', async () => {
    const executionId = await bench.submit();
    const other = await bench.another();
    const keys = Array.from({ length: 12 }, (_, index) => `k${index}`);
    await Promise.all(
      keys.map((key, index) =>
        (index % 2 === 0 ? bench.engine : other).executions.setTags(executionId, { set: { [key]: 'x' } }),
      ),
    );
    expect(Object.keys(await tagRows(executionId)).toSorted()).toEqual(keys.toSorted());
  });
});

describe('a change of tags is refused', () => {
  it('when the execution does not exist', async () => {
    const executionId = misplaced(await bench.submit({ tags: { team: 'a' } }));
    expect(await bench.engine.executions.setTags(executionId, { set: { team: 'b' } })).toEqual({
      outcome: 'not_found',
    });
  });

  it('when it would have too many, counted after removals, and nothing is changed', async () => {
    const executionId = await bench.submit({ kind: newKind(), tags: manyTags(64) });
    const refused = bench.engine.executions.setTags(executionId, { set: { more: 'x' } });
    await expect(refused).rejects.toMatchObject({ code: 'too_many', field: 'set' });
    expect(Object.keys(await tagRows(executionId))).toHaveLength(64);
    const swapped = await bench.engine.executions.setTags(executionId, {
      set: { more: 'x' },
      remove: ['tag-0'],
    });
    expect(swapped.outcome).toBe('set');
  });

  it.each([
    [{ set: { a: 1 } }, 'set.a'],
    [{ set: { '': 'x' } }, 'set'],
    [{ remove: 'a' }, 'remove'],
    [{ remove: [''] }, 'remove[0]'],
    [{ replace: {} }, 'replace'],
    [{ set: {}, by: '' }, 'by'],
  ])('when the request is %j', async (request, field) => {
    const executionId = await bench.submit();
    await expect(bench.engine.executions.setTags(executionId, request as never)).rejects.toMatchObject({
      code: 'invalid_input',
      field: expect.stringContaining(field),
    });
  });
});
