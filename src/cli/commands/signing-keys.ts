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
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { instant } from '../wording.ts';

interface RotateOptions {
  grace?: string;
}

const HEADINGS = ['KEY', 'STATE', 'SECRET', 'MADE', 'GOOD UNTIL'];
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
  const keys = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.signingKeys.list(),
  );
  if (keys.length === 0) printer.note('there is no key yet: the first token creates one.');
  if (printer.format === 'json') {
    for (const key of keys) printer.result(key, []);
  } else if (keys.length > 0) {
    const heading = HEADINGS.map((text): Span => [text, 'dim']);
    printer.result(keys, tableRows([heading, ...keys.map(cellsOf)], []));
  }
  return EXIT.ok;
}

function cellsOf({ kid, state, secret, createdAtMs, verifiesUntilMs, revokedAtMs }: SigningKey): Span[] {
  const endMs = revokedAtMs ?? verifiesUntilMs;
  return [
    [kid],
    [state, STATE_TONES[state] ?? 'plain'],
    secret === 'known' ? ['known'] : ['not here', 'warn'],
    [instant(createdAtMs)],
    [endMs === null ? '-' : instant(endMs)],
  ];
}

async function rotate(session: Session, { grace }: RotateOptions): Promise<number> {
  const request =
    grace === undefined
      ? {}
      : { graceMs: parseDuration(grace === '0' ? '0s' : grace, '--grace', LIMITS.tokenMs) };
  const signingSecret = session.signingSecrets();
  const rotated = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.signingKeys.rotate(request),
  );
  const { kid, previousKid } = rotated;
  session.printer.result(rotated, [
    [[`${kid}  `], ['signs new tokens', 'good']],
    ...(previousKid === null
      ? []
      : [[[`${previousKid}  `], [`its tokens ${restOf(request.graceMs)}`]] as const]),
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
