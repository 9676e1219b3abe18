/**
 * `flowfabric signing-keys`: which keys sign and verify tokens, and changing them. Keys are named, never printed: they are
 * derived from a secret the processes are configured with. The list is one object per line as JSON.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { RevokeKeyOutcome, SigningKey } from '../../contract/signals.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { parseDuration } from '../input.ts';
import type { Span, Tone } from '../style.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { column, tableOf } from '../table.ts';
import { shortDuration } from '../../contract/shape/duration.ts';

interface RotateOptions {
  grace?: string;
}

const NO_KEYS =
  'there is no key yet: the first token creates one. Try: flowfabric waitpoints issue-token ID WAITPOINT';

const COLUMNS = [
  column('KEY', 'whole'),
  column('STATE', 'whole'),
  column('SECRET', 'whole'),
  column('AGE', 'number'),
  column('LEFT', 'number'),
];
const STATE_TONES: Partial<Record<SigningKey['state'], Tone>> = { signing: 'good', revoked: 'warn' };

export const signingKeys: CommandSpec = {
  name: 'signing-keys',
  summary: 'list, rotate and revoke the signing keys of tokens',
  description: 'The keys that sign and verify tokens. They are derived from\nFLOWFABRIC_SIGNING_SECRET.',
  examples: ['flowfabric signing-keys list', 'flowfabric signing-keys rotate --grace 2d'],
  commands: [
    {
      name: 'list',
      summary: 'list the keys',
      description: 'List the keys that sign and verify tokens.',
      examples: ['flowfabric signing-keys list', 'flowfabric signing-keys list --json'],
      action: list,
    },
    {
      name: 'rotate',
      summary: 'sign new tokens with a new key',
      description:
        'Sign new tokens with a new key, derived from the first secret of\n' +
        'FLOWFABRIC_SIGNING_SECRET. Tokens of the old key stay valid until they expire,\n' +
        'or for --grace.',
      options: [
        ['--grace <duration>', 'how long; 0 ends the old key at once (default: until its tokens expire)'],
      ],
      examples: ['flowfabric signing-keys rotate', 'flowfabric signing-keys rotate --grace 0'],
      action: rotate,
    },
    {
      name: 'revoke',
      summary: 'end a key at once',
      description: 'End a key at once. The current key cannot be revoked: rotate with --grace 0.',
      arguments: [['<key>', 'its name, as signing-keys list prints it']],
      examples: ['flowfabric signing-keys revoke 4f2a91c0'],
      action: revoke,
    },
  ],
};

async function list(session: Session): Promise<number> {
  const { printer } = session;
  const signingSecret = session.signingSecrets();
  const { keys, nowMs } = await withEngine(session, { listen: 'off', signingSecret }, async (engine) => ({
    keys: await engine.signingKeys.list(),
    nowMs: await engine.upkeep.serverTimeMs(),
  }));
  if (keys.length === 0) printer.note(NO_KEYS);
  const rows = keys.map((key) => cellsOf(key, nowMs));
  printer.list(keys, tableOf(COLUMNS, rows, printer.columns));
  return EXIT.ok;
}

function cellsOf(key: SigningKey, nowMs: number): Span[] {
  const { kid, state, secret, createdAtMs, verifiesUntilMs } = key;
  const leftMs = verifiesUntilMs === null || state === 'revoked' ? null : verifiesUntilMs - nowMs;
  return [
    [kid],
    [state, STATE_TONES[state] ?? 'plain'],
    secret === 'known' ? ['known'] : ['not here', 'warn'],
    [shortDuration(nowMs - createdAtMs)],
    [leftMs === null || leftMs <= 0 ? '-' : shortDuration(leftMs)],
  ];
}

async function rotate(session: Session, { grace }: RotateOptions): Promise<number> {
  const request =
    grace === undefined
      ? {}
      : { grace: parseDuration(grace === '0' ? '0s' : grace, '--grace', LIMITS.tokenMs) };
  const signingSecret = session.signingSecrets();
  const rotated = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.signingKeys.rotate(request),
  );
  const { kid, previousKid } = rotated;
  session.printer.result(rotated, [
    [[`${kid}  `], ['signs new tokens', 'good']],
    ...(previousKid === null
      ? []
      : [[[`${previousKid}  `], [`its tokens ${restOf(request.grace)}`]] as const]),
  ]);
  return EXIT.ok;
}

function restOf(graceMs: number | undefined): string {
  if (graceMs === undefined) return 'stay valid until they expire';
  return graceMs === 0 ? 'are no longer valid' : `stay valid for ${shortDuration(graceMs)}`;
}

async function revoke(session: Session, _options: object, kid: string): Promise<number> {
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.signingKeys.revoke(kid));
  session.printer.result({ kid, ...answer }, [[[`${printable(kid)}  `], REVOKED[answer.outcome]]]);
  if (answer.outcome === 'not_found') return EXIT.notFound;
  return answer.outcome === 'is_current' ? EXIT.refused : EXIT.ok;
}

const REVOKED: Record<RevokeKeyOutcome['outcome'], Span> = {
  revoked: ['revoked: its tokens are no longer valid', 'good'],
  already_revoked: ['was already revoked'],
  not_found: ['not revoked: there is no such key', 'bad'],
  is_current: [
    'not revoked: it is the current key; `flowfabric signing-keys rotate --grace 0` replaces it',
    'warn',
  ],
};
