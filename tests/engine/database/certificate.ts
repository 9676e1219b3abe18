/**
 * An untrusted certificate for tests of TLS: X.509 in DER, signed with its own key. Node can verify certificates but
 * not create them.
 */
import { generateKeyPairSync, sign } from 'node:crypto';

/** The DER tags used in a certificate. */
const TAG = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  text: 0x0c,
  time: 0x18,
  sequence: 0x30,
  set: 0x31,
};
const ECDSA_SHA256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const COMMON_NAME = [0x55, 0x04, 0x03];
const ALTERNATIVE_NAME = [0x55, 0x1d, 0x11];

function der(tag: number, ...parts: (Buffer | readonly number[])[]): Buffer {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part)));
  return Buffer.concat([Buffer.from([tag, ...sizeOf(content.length)]), content]);
}

function sizeOf(length: number): number[] {
  if (length < 0x80) return [length];
  return length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
}

function pem(label: string, content: Buffer): string {
  const lines = content.toString('base64').match(/.{1,64}/g)!;
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n');
}

/** For one host name, valid until 2049. */
export function selfSigned(host: string): { certificate: string; key: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const algorithm = der(TAG.sequence, der(TAG.oid, ECDSA_SHA256));
  const name = der(
    TAG.sequence,
    der(TAG.set, der(TAG.sequence, der(TAG.oid, COMMON_NAME), der(TAG.text, Buffer.from(host)))),
  );
  const time = (text: string) => der(TAG.time, Buffer.from(text));
  const names = der(TAG.octets, der(TAG.sequence, der(0x82, Buffer.from(host))));
  const body = der(
    TAG.sequence,
    der(0xa0, der(TAG.integer, [2])),
    der(TAG.integer, [1]),
    algorithm,
    name,
    der(TAG.sequence, time('20200101000000Z'), time('20490101000000Z')),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, der(TAG.sequence, der(TAG.sequence, der(TAG.oid, ALTERNATIVE_NAME), names))),
  );
  const signature = sign('sha256', body, privateKey);
  const certificate = der(TAG.sequence, body, algorithm, der(TAG.bits, [0], signature));
  return {
    certificate: pem('CERTIFICATE', certificate),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  };
}
