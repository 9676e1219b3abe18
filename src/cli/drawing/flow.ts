/**
 * A flow as a drawing in Mermaid or DOT: members coloured by state, joins with their progress, edges with their
 * conditions and inputs. Text from a snapshot; names are user text: they are escaped, and never become ids.
 */
import type {
  EdgeSnapshot,
  EdgeState,
  FlowSnapshot,
  JoinSnapshot,
  MemberSnapshot,
} from '../../contract/flows.ts';
import type { PublicState } from '../../contract/states.ts';
import { printable } from '../../contract/secrets.ts';

interface Colours {
  fill: string;
  line: string;
}

const GREY: Colours = { fill: '#f3f4f6', line: '#6b7280' };
const YELLOW: Colours = { fill: '#fef9c3', line: '#a16207' };
const RED: Colours = { fill: '#fee2e2', line: '#b91c1c' };

const COLOURS: Record<PublicState, Colours> = {
  waiting: { fill: '#e0f2fe', line: '#0369a1' },
  delayed: YELLOW,
  rate_limited: YELLOW,
  waiting_children: GREY,
  active: { fill: '#bfdbfe', line: '#1d4ed8' },
  suspended: YELLOW,
  completed: { fill: '#dcfce7', line: '#15803d' },
  failed: RED,
  cancelled: { fill: '#ffedd5', line: '#c2410c' },
  expired: RED,
  skipped: { fill: '#ffffff', line: '#9ca3af' },
};

/** The satisfied edges of those a join needs: `2 of 3`; for any and quorum, also how many edges there are. */
export function joinProgress({ policy, edges, satisfied }: JoinSnapshot): string {
  if (policy.kind === 'all') return `${satisfied} of ${edges}`;
  return `${satisfied} of ${policy.kind === 'any' ? 1 : policy.k} (${policy.kind} of ${edges})`;
}

export function toMermaid({ members, edges }: FlowSnapshot): string {
  const ids = idsOf(members);
  return [
    'flowchart TD',
    ...members.map(
      (member) => `  ${ids.get(member.name)}["${linesOf(member).map(mermaidText).join('<br/>')}"]`,
    ),
    ...edges.map((edge) => {
      const label = labelOf(edge);
      const caption = label === '' ? '' : `|"${mermaidText(label)}"|`;
      return `  ${ids.get(edge.from)} ${MERMAID_ARROWS[edge.state]}${caption} ${ids.get(edge.to)}`;
    }),
    ...members.map((member) => `  class ${ids.get(member.name)} ${member.state}`),
    ...statesOf(members).map((state) => {
      const { fill, line } = COLOURS[state];
      return `  classDef ${state} fill:${fill},stroke:${line},color:#111827`;
    }),
    '',
  ].join('\n');
}

export function toDot({ name, members, edges }: FlowSnapshot): string {
  const ids = idsOf(members);
  return [
    `digraph ${dotText([name])} {`,
    '  node [shape=box, style="rounded,filled", fontname="sans-serif"];',
    ...members.map((member) => {
      const { fill, line } = COLOURS[member.state];
      const style = `fillcolor="${fill}", color="${line}", class="${member.state}"`;
      return `  ${ids.get(member.name)} [label=${dotText(linesOf(member))}, ${style}];`;
    }),
    ...edges.map((edge) => {
      const label = labelOf(edge);
      const caption = label === '' ? '' : `label=${dotText([label])}, `;
      return `  ${ids.get(edge.from)} -> ${ids.get(edge.to)} [${caption}style=${DOT_STYLES[edge.state]}];`;
    }),
    '}',
    '',
  ].join('\n');
}

/** Satisfied edges are bold, pending ones plain; failed, skipped and staged ones are dashed. */
const MERMAID_ARROWS: Record<EdgeState, string> = {
  staged: '-.->',
  pending: '-->',
  satisfied: '==>',
  failed: '-.->',
  skipped: '-.->',
};
const DOT_STYLES: Record<EdgeState, string> = {
  staged: 'dotted',
  pending: 'solid',
  satisfied: 'bold',
  failed: 'dashed',
  skipped: 'dashed',
};

function idsOf(members: readonly MemberSnapshot[]): Map<string, string> {
  return new Map(members.map(({ name }, index) => [name, `n${index}`]));
}

function statesOf(members: readonly MemberSnapshot[]): PublicState[] {
  return [...new Set(members.map(({ state }) => state))].toSorted();
}

/** A join of one edge is not worth showing. */
function linesOf({ name, state, join }: MemberSnapshot): string[] {
  const hasJoin = join !== null && (join.policy.kind !== 'all' || join.edges > 1);
  return [name, ...(hasJoin ? [joinProgress(join)] : []), state];
}

/** The default, on success and without input, has no label. */
function labelOf({ on, as }: EdgeSnapshot): string {
  return [on === 'success' ? '' : `on ${on}`, as === null ? '' : `as ${as}`]
    .filter((part) => part !== '')
    .join(', ');
}

/** Mermaid has no backslash escape: characters with a meaning of their own are written as their code points. */
function mermaidText(text: string): string {
  return printable(text).replaceAll(
    /[^\p{L}\p{N} ,._/()-]/gu,
    (character) => `#${character.codePointAt(0)};`,
  );
}

function dotText(lines: readonly string[]): string {
  const escaped = lines.map((line) => printable(line).replaceAll(/["\\]/g, String.raw`\$&`));
  return `"${escaped.join(String.raw`\n`)}"`;
}
