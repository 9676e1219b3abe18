/**
 * The secrets a process signs tokens with. They come from its configuration and never leave it: the database knows only which
 * keys are made from which of them, by a print that tells nothing. Rows of keys and tokens themselves are elsewhere.
 */
import { EngineError } from '../../contract/errors.ts';
import { anyString, list, stringOr } from '../../contract/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, type Kind } from '../../contract/shape.ts';
import { deriveKey, openToken, printOf, signToken, type TokenClaims } from './tokens.ts';

export type SigningSecret = string | readonly string[];

export class Signing {
  readonly #schema: string;
  /** By print; the first is the one new keys are made from. */
  readonly #secrets: ReadonlyMap<string, string>;

  constructor(secrets: readonly string[], schema: string) {
    this.#schema = schema;
    this.#secrets = new Map(secrets.map((secret) => [printOf(secret), secret]));
  }

  /** The print new keys are made from; throws when there is no secret. */
  get firstPrint(): string {
    const first = this.#secrets.keys().next();
    if (first.done === true) throw notConfigured('no signing secret is configured');
    return first.value;
  }

  knows(print: string): boolean {
    return this.#secrets.has(print);
  }

  sign(claims: TokenClaims, print: string): string {
    const secret = this.#secrets.get(print);
    if (secret === undefined)
      throw notConfigured(`key ${claims.kid} was made from a secret it does not have`);
    return signToken(claims, deriveKey(secret, this.#schema, claims.kid));
  }

  /** What a token says and which secret signed it, if it is one of ours. The database is not asked. */
  open(token: string): (TokenClaims & { print: string }) | undefined {
    return openToken(token, (kid) =>
      [...this.#secrets].map(([print, secret]) => ({ print, key: deriveKey(secret, this.#schema, kid) })),
    );
  }
}

/** Long enough to be a secret. What is wrong with one is said without quoting it. */
const secret = anyString.and((given) =>
  Buffer.byteLength(given) < LIMITS.signingSecretBytesMin
    ? fault(`must have at least ${LIMITS.signingSecretBytesMin} bytes; make one with openssl rand -hex 32`)
    : undefined,
);

export const signingSecret: Kind<SigningSecret> = stringOr(secret, list(secret, LIMITS.signingSecrets));

export function secretsOf(given: SigningSecret = []): readonly string[] {
  return typeof given === 'string' ? [given] : given;
}

function notConfigured(why: string): EngineError {
  return new EngineError(
    'signing_not_configured',
    `Tokens cannot be made here: ${why}. Give every process the same signingSecret (FLOWFABRIC_SIGNING_SECRET for the command line).`,
  );
}
