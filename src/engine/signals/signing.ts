/**
 * The secrets a process signs tokens with. They come from its configuration and never leave it: the database stores
 * only prints, which identify a secret without revealing it. Key rows and tokens are in other files.
 */
import { EngineError } from '../../contract/errors.ts';
import { anyString, list, stringOr } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, type Kind } from '../../contract/shape/shape.ts';
import { deriveKey, openToken, printOf, signToken, type TokenContent } from './tokens.ts';

/** One secret, or several: the first makes new keys, the others still verify. */
export type SigningSecret = string | readonly string[];

/** Key ids whose keys a process remembers; keys rotate, so few are in use. */
const MAX_KEY_IDS = 32;

/** A key, and the print of the secret it is derived from. */
interface SigningKey {
  print: string;
  key: Buffer;
}

/** Signs and opens tokens with the configured secrets. */
export class Signing {
  readonly #schema: string;
  /** By key id. Only of tokens that were signed or opened: a stranger can make up as many ids as he likes. */
  readonly #keys = new Map<string, readonly SigningKey[]>();
  /** By print; new keys are made from the first. */
  readonly #secrets: ReadonlyMap<string, string>;

  constructor(secrets: readonly string[], schema: string) {
    this.#schema = schema;
    this.#secrets = new Map(secrets.map((secret) => [printOf(secret), secret]));
  }

  /** The print of the first secret. Throws `signing_not_configured` when there is none. */
  get firstPrint(): string {
    const first = this.#secrets.keys().next();
    if (first.done === true) throw notConfigured('no signing secret is configured');
    return first.value;
  }

  knows(print: string): boolean {
    return this.#secrets.has(print);
  }

  sign(content: TokenContent, print: string): string {
    const { kid } = content;
    const keys = this.#keysOf(kid);
    const found = keys.find((key) => key.print === print);
    if (found === undefined)
      throw notConfigured(`key ${kid} was made from a secret that this process does not have`);
    this.#remember(kid, keys);
    return signToken(content, found.key);
  }

  /**
   * Returns a token's content and the secret that signed it; undefined when no secret did. Does not ask the database.
   */
  open(token: string): (TokenContent & { print: string }) | undefined {
    let keys: readonly SigningKey[] = [];
    const content = openToken(token, (kid) => (keys = this.#keysOf(kid)));
    if (content !== undefined) this.#remember(content.kid, keys);
    return content;
  }

  #keysOf(kid: string): readonly SigningKey[] {
    const derived = ([print, secret]: [string, string]): SigningKey => ({
      print,
      key: deriveKey(secret, this.#schema, kid),
    });
    return this.#keys.get(kid) ?? [...this.#secrets].map(derived);
  }

  #remember(kid: string, keys: readonly SigningKey[]): void {
    if (this.#keys.has(kid)) return;
    if (this.#keys.size >= MAX_KEY_IDS) this.#keys.clear();
    this.#keys.set(kid, keys);
  }
}

/** A string long enough to be a secret. Its error messages do not quote it. */
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
    `Tokens cannot be used in this process: ${why}. Give every process the same signingSecret (FLOWFABRIC_SIGNING_SECRET for the command line).`,
  );
}
