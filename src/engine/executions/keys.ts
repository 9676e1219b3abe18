/**
 * Keys: names that an application gives its executions, one open execution for each and namespace. Submits give them
 * (submitting/); here they are looked up.
 */
import type { KeyedExecution, KeyOptions } from '../../contract/executions.ts';
import { KEY_MARK, looksLikeId, partitionOfKey } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import { string } from '../../contract/shape/kinds.ts';
import { fault, shape } from '../../contract/shape/shape.ts';
import type { EngineContext } from '../kit/context.ts';
import { namespaceName } from '../kit/kinds.ts';
import { readKey } from './keys.sql.ts';

/** Wherever an id is accepted a key may be, too: nobody must take one for the other. */
export const executionKey = string(LIMITS.keyBytes).and((text) => {
  if (looksLikeId(text)) return fault('looks like the id of an execution; put a word before it');
  return text.includes(KEY_MARK) ? fault('must not contain the character \\u0001') : undefined;
});

const keyOptions = shape<KeyOptions>({ namespace: namespaceName.optional() });

/** The execution that a key names now; null when it names none. */
export async function byKey(
  context: EngineContext,
  key: string,
  options: KeyOptions = {},
): Promise<KeyedExecution | null> {
  executionKey.check(key, 'key');
  const { namespace = 'default' } = keyOptions.check(options, 'options');
  const partition = partitionOfKey(namespace, key);
  return (await readKey(context.database, { namespace, key, partition })) ?? null;
}
