/**
 * `--key` in the place of an id, for every command that takes the ids of executions: the options it adds, and the
 * argument it puts where the id would be. What that argument means is looked up in short-ids.ts.
 */
import type { CommandSpec, OptionSpec } from './command.ts';
import { UsageError } from './exit-codes.ts';
import { keyArgument } from './short-ids.ts';

export const ID_ARGUMENT = ['<id>', 'its id, or the beginning of it'] as const;
export const IDS_ARGUMENT = ['[id...]', 'their ids, or the beginnings of them'] as const;
export const MAYBE_ID_ARGUMENT = ['[id]', 'only of this execution: its id, or the beginning of it'] as const;
const OF_EXECUTIONS: readonly unknown[] = [ID_ARGUMENT, IDS_ARGUMENT, MAYBE_ID_ARGUMENT];

const KEY_OPTION: OptionSpec = ['--key <key>', 'the execution that this key names, instead of an id'];
const NAMESPACE_OPTION: OptionSpec = ['--namespace <name>', 'with --key: its namespace (default: default)'];

export interface KeyOptions {
  key?: string;
  namespace?: string;
}

type Arguments = NonNullable<CommandSpec['arguments']>;

/** The place of the id among the arguments of a command; undefined for a command that takes none of an execution. */
export function placeOfId({ arguments: given = [] }: CommandSpec): number | undefined {
  const place = given.findIndex((argument) => OF_EXECUTIONS.includes(argument));
  return place < 0 ? undefined : place;
}

/** The options of a command, with those that name an execution by its key. */
export function withKeyOptions(spec: CommandSpec): readonly OptionSpec[] {
  const { options = [] } = spec;
  if (placeOfId(spec) === undefined) return options;
  const hasNamespace = options.some(([flags]) => flags.startsWith('--namespace '));
  return [...options, KEY_OPTION, ...(hasNamespace ? [] : [NAMESPACE_OPTION])];
}

/** What the command is given: with `--key`, the key stands where the id would. */
export function withKey(
  { arguments: declared = [] }: CommandSpec,
  place: number,
  { key, namespace, ...options }: KeyOptions,
  values: readonly unknown[],
): { options: object; values: unknown[] } {
  const words = values.flat().filter((value) => value !== undefined);
  if (key === undefined) {
    const isBulk = declared[place] === IDS_ARGUMENT;
    if (namespace !== undefined && !isBulk) throw new UsageError('--namespace needs --key.');
    return {
      options: namespace === undefined ? options : { ...options, namespace },
      values: distributed(declared, words),
    };
  }
  if (isFull(declared, place, words)) throw new UsageError('Give an id or --key, not both.');
  return { options, values: distributed(declared, words.toSpliced(place, 0, keyArgument(key, namespace))) };
}

/** Whether every place is taken already, with a word in that of the id. */
function isFull(declared: Arguments, place: number, words: readonly unknown[]): boolean {
  if (declared[place] === IDS_ARGUMENT) return words.length > place;
  return !declared.some(isVariadic) && words.length >= declared.length;
}

const isVariadic = ([name]: Arguments[number]): boolean => name.endsWith('...]') || name.endsWith('...>');

/** The words as the arguments of the command; the last may take several. */
function distributed(declared: Arguments, words: readonly unknown[]): unknown[] {
  return declared.map((argument, index) => {
    const [name] = argument;
    if (isVariadic(argument)) return words.slice(index);
    if (words[index] === undefined && name.startsWith('<'))
      throw new UsageError(`Missing required argument '${name.slice(1, -1)}'.`);
    return words[index];
  });
}
