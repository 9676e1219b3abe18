/**
 * Flows as drawings: what is in them, and that no name can become anything but text.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EdgeSnapshot, FlowSnapshot, JoinSnapshot, MemberSnapshot } from '../../contract/flows.ts';
import { joinProgress, toDot, toMermaid } from './flow.ts';

const join = (change: Partial<JoinSnapshot>): JoinSnapshot => ({
  policy: { kind: 'all' },
  state: 'pending',
  edges: 3,
  satisfied: 2,
  failed: 0,
  skipped: 0,
  pending: 1,
  ...change,
});

const member = (name: string, change: Partial<MemberSnapshot> = {}): MemberSnapshot => ({
  name,
  executionId: '{fp:7}:018f0000-0000-7000-8000-000000000001',
  kind: 'k',
  state: 'completed',
  attemptIndex: 0,
  message: null,
  join: null,
  ...change,
});

const edge = (from: string, to: string, change: Partial<EdgeSnapshot> = {}): EdgeSnapshot => ({
  edgeId: '018f0000-0000-7000-8000-000000000002',
  from,
  to,
  on: 'success',
  state: 'satisfied',
  as: null,
  ...change,
});

function flow(name: string, members: MemberSnapshot[], edges: EdgeSnapshot[]): FlowSnapshot {
  return {
    flowId: '{fp:7}:018f0000-0000-7000-8000-00000000000f',
    name,
    namespace: 'default',
    tags: {},
    state: 'running',
    revision: 1,
    nodeCount: members.length,
    edgeCount: edges.length,
    createdAtMs: 1,
    sealedAtMs: 1,
    endedAtMs: null,
    cancel: null,
    counts: {},
    members,
    edges,
  };
}

const RACE = flow(
  'race',
  [
    member('claude', { state: 'cancelled' }),
    member('gpt'),
    member('judge', { state: 'waiting_children', join: join({}) }),
    member('sorry', { state: 'skipped', join: join({ edges: 1, satisfied: 0, state: 'impossible' }) }),
  ],
  [
    edge('gpt', 'judge', { as: 'answers' }),
    edge('claude', 'judge', { as: 'answers', state: 'pending' }),
    edge('judge', 'sorry', { on: 'failure', as: 'why', state: 'skipped' }),
    edge('gpt', 'sorry', { on: 'always', state: 'staged' }),
  ],
);

describe('a flow', () => {
  it('as Mermaid: members with joins and states, edges with conditions and inputs, a class for each state', () => {
    expect(toMermaid(RACE).split('\n')).toEqual([
      'flowchart TD',
      '  n0["claude<br/>cancelled"]',
      '  n1["gpt<br/>completed"]',
      '  n2["judge<br/>2 of 3<br/>waiting_children"]',
      '  n3["sorry<br/>skipped"]',
      '  n1 ==>|"as answers"| n2',
      '  n0 -->|"as answers"| n2',
      '  n2 -.->|"on failure, as why"| n3',
      '  n1 -.->|"on always"| n3',
      '  class n0 cancelled',
      '  class n1 completed',
      '  class n2 waiting_children',
      '  class n3 skipped',
      '  classDef cancelled fill:#ffedd5,stroke:#c2410c,color:#111827',
      '  classDef completed fill:#dcfce7,stroke:#15803d,color:#111827',
      '  classDef skipped fill:#ffffff,stroke:#9ca3af,color:#111827',
      '  classDef waiting_children fill:#f3f4f6,stroke:#6b7280,color:#111827',
      '',
    ]);
  });

  it('as DOT: the same', () => {
    expect(toDot(RACE).split('\n')).toEqual([
      'digraph "race" {',
      '  node [shape=box, style="rounded,filled", fontname="sans-serif"];',
      String.raw`  n0 [label="claude\ncancelled", fillcolor="#ffedd5", color="#c2410c", class="cancelled"];`,
      String.raw`  n1 [label="gpt\ncompleted", fillcolor="#dcfce7", color="#15803d", class="completed"];`,
      String.raw`  n2 [label="judge\n2 of 3\nwaiting_children", fillcolor="#f3f4f6", color="#6b7280", class="waiting_children"];`,
      String.raw`  n3 [label="sorry\nskipped", fillcolor="#ffffff", color="#9ca3af", class="skipped"];`,
      '  n1 -> n2 [label="as answers", style=bold];',
      '  n0 -> n2 [label="as answers", style=solid];',
      '  n2 -> n3 [label="on failure, as why", style=dashed];',
      '  n1 -> n3 [label="on always", style=dotted];',
      '}',
      '',
    ]);
  });
});

describe('a join', () => {
  it.each<[string, Partial<JoinSnapshot>]>([
    ['2 of 3', {}],
    ['0 of 1 (any of 3)', { policy: { kind: 'any' }, satisfied: 0 }],
    ['2 of 2 (quorum of 3)', { policy: { kind: 'quorum', k: 2 } }],
  ])('is shown as %s', (text, change) => {
    expect(joinProgress(join(change))).toBe(text);
  });
});

/** Text that would be something else where quotes, brackets, numbers, lines or backslashes are taken as they are. */
const NASTY = fc.oneof(
  fc.constantFrom(
    'a"]; b',
    'x\\',
    '\\"',
    '#quot;',
    '</script>',
    '`md`',
    'end',
    'a\nb',
    '%%{init}%%',
    'style:#;',
  ),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 12 }),
);
const named = (name: string, as: string): FlowSnapshot =>
  flow(name, [member(name), member(`${name}2`)], [edge(name, `${name}2`, { as })]);

describe('whatever names there are', () => {
  it('Mermaid sees only text between quotes, with neither a quote nor a colon in it', () => {
    expect(toMermaid(named('a"]; b', 'x'))).toContain('  n0["a#34;#93;#59; b<br/>completed"]');
    fc.assert(
      fc.property(NASTY, NASTY, (name, as) => {
        const lines = toMermaid(named(name, as)).split('\n');
        expect(lines).toHaveLength(8);
        const text = String.raw`(?:[\p{L}\p{N} ,._/()-]|#\d+;)*`;
        expect(lines[1]).toMatch(new RegExp(`^  n0\\["${text}<br/>completed"\\]$`, 'u'));
        expect(lines[3]).toMatch(new RegExp(`^  n0 ==>\\|"${text}"\\| n1$`, 'u'));
      }),
    );
  });

  it('DOT sees only text between quotes, with every quote and backslash escaped', () => {
    expect(toDot(named('a"]; b', 'x'))).toContain(String.raw`  n0 [label="a\"]; b\ncompleted", `);
    fc.assert(
      fc.property(NASTY, NASTY, (name, as) => {
        const lines = toDot(named(name, as)).split('\n');
        expect(lines).toHaveLength(7);
        const text = String.raw`(?:[^"\\]|\\["\\])*`;
        expect(lines[0]).toMatch(new RegExp(String.raw`^digraph "${text}" \{$`, 'u'));
        expect(lines[2]).toMatch(
          new RegExp(String.raw`^  n0 \[label="${text}\\ncompleted", fillcolor=`, 'u'),
        );
        expect(lines[4]).toMatch(new RegExp(String.raw`^  n0 -> n1 \[label="${text}", style=bold\];$`, 'u'));
      }),
    );
  });
});
