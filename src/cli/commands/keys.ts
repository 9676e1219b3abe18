/**
 * `flowfabric keys`: which keys sign and verify tokens, and changing them. Keys are named, never shown: they are made from a secret
 * the processes are configured with. A list, so one object per line as JSON.
 */
import type { Command } from 'commander';
import { LIMITS } from '../../contract/limits.ts';
import type { RevokeKeyOutcome, SigningKey } from '../../contract/signals.ts';
import { EXIT } from '../exit-codes.ts';
import { parseDuration } from '../input.ts';
import type { Span, Tone } from '../look.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { instant, span } from '../wording.ts';

export interface RotateOptions {
  grace?: string;
}

const HEADINGS = ['KEY', 'STATE', 'SECRET', 'MADE', 'GOOD UNTIL'];
const STATE_TONES: Partial<Record<SigningKey['state'], Tone>> = { signing: 'good', revoked: 'warn' };

export function describeKeys(command: Command): Command {
  return command
    .summary('list the signing keys of tokens; change them')
    .description('List which keys sign and verify tokens. They are made from FLOWFABRIC_SIGNING_SECRET.');
}

export function describeRotate(command: Command): Command {
  return command
    .description(
      'Sign new tokens with a new key, made from the first secret of FLOWFABRIC_SIGNING_SECRET.\n' +
        'Tokens of the old key stay good as long as they were to be, or as --grace says.',
    )
    .option('--grace <duration>', 'how long; 0 ends the old key at once (default: as long as its tokens)');
}

export async function keysCommand(session: Session): Promise<number> {
  const { printer } = session;
  const signingSecret = session.signingSecrets();
  const keys = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.listSigningKeys(),
  );
  if (keys.length === 0) printer.note('there is no key yet: the first token makes one.');
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

export async function rotateCommand({ grace }: RotateOptions, session: Session): Promise<number> {
  const request =
    grace === undefined
      ? {}
      : { graceMs: parseDuration(grace === '0' ? '0s' : grace, '--grace', LIMITS.tokenMs) };
  const signingSecret = session.signingSecrets();
  const rotated = await withEngine(session, { listen: 'off', signingSecret }, (engine) =>
    engine.rotateSigningKey(request),
  );
  const { kid, previousKid } = rotated;
  session.printer.result(rotated, [
    [[`${kid}  `], ['signs from now on', 'good']],
    ...(previousKid === null
      ? []
      : [[[`${previousKid}  `], [`its tokens ${restOf(request.graceMs)}`]] as const]),
  ]);
  return EXIT.ok;
}

function restOf(graceMs: number | undefined): string {
  if (graceMs === undefined) return 'stay good as long as they were to be';
  return graceMs === 0 ? 'are good no longer' : `stay good for ${span(graceMs)}`;
}

export async function revokeCommand(kid: string, session: Session): Promise<number> {
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.revokeSigningKey(kid));
  session.printer.result({ kid, ...answer }, [[[`${printable(kid)}  `], REVOKED[answer.outcome]]]);
  if (answer.outcome === 'not_found') return EXIT.notFound;
  return answer.outcome === 'is_current' ? EXIT.refused : EXIT.ok;
}

const REVOKED: Record<RevokeKeyOutcome['outcome'], Span> = {
  revoked: ['revoked: its tokens are good no longer', 'good'],
  already_revoked: ['was revoked before'],
  not_found: ['not revoked: there is no such key', 'bad'],
  is_current: ['not revoked: it signs; `flowfabric keys rotate --grace 0` ends it and makes another', 'warn'],
};
