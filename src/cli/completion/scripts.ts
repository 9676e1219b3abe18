/**
 * Completion scripts for bash, zsh and fish. Each walks the words before the cursor to find the command they name, and
 * offers what may follow it. Pure text from the command tree; nothing runs the program or asks the database.
 */
import type { OptionEntry, Place } from './tree.ts';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

export function scriptFor(shell: Shell, places: readonly Place[]): string {
  return { bash, zsh, fish }[shell](places);
}

/** A string in single quotes, for any of the shells. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function patterns(texts: readonly string[]): string {
  return texts.map(quoted).join('|');
}

function pathsBelow(places: readonly Place[]): string[] {
  return places.map(({ path }) => path).filter((path) => path !== '');
}

/** Options that a value follows: that word is no command. */
function valueOptions(places: readonly Place[]): string[] {
  const names = places.flatMap(({ options }) => options.filter(isValued).map(({ name }) => name));
  return [...new Set(names)].toSorted();
}

function isValued({ takesValue }: OptionEntry): boolean {
  return takesValue;
}

/** Options with a known set of values, by the command and the option. */
function choicesOf(places: readonly Place[]): { at: string[]; choices: readonly string[] }[] {
  const byChoices = new Map<string, { at: string[]; choices: readonly string[] }>();
  for (const { path, options } of places)
    for (const { name, choices } of options) {
      if (choices === null) continue;
      const entry = byChoices.get(choices.join(' ')) ?? { at: [], choices };
      entry.at.push(`${path} ${name}`);
      byChoices.set(choices.join(' '), entry);
    }
  return [...byChoices.values()];
}

function bash(places: readonly Place[]): string {
  return `# Completion of flowfabric for bash. Load it with: source <(flowfabric completion bash)
_flowfabric() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}"
  local at='' skip='' words='' options='' i word
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    if [[ -n $skip ]]; then skip=''; continue; fi
    case "$word" in ${patterns(valueOptions(places))}) skip=1; continue ;; esac
    case "\${at:+$at }$word" in ${patterns(pathsBelow(places))}) at="\${at:+$at }$word" ;; esac
  done
  case "$at $prev" in
${choicesOf(places)
  .map(
    ({ at, choices }) => `    ${patterns(at)})
      COMPREPLY=($(compgen -W ${quoted(choices.join(' '))} -- "$cur")); return ;;`,
  )
  .join('\n')}
  esac
  if [[ -n $skip ]]; then COMPREPLY=(); return; fi
  case "$at" in
${places
  .map(
    ({ path, commands, choices, options }) => `    ${quoted(path)})
      words=${quoted([...commands.map(({ name }) => name), ...choices].join(' '))}
      options=${quoted(options.map(({ name }) => name).join(' '))} ;;`,
  )
  .join('\n')}
  esac
  if [[ $cur == -* ]]; then words="$options"; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o bashdefault -o default -F _flowfabric flowfabric
`;
}

/** An entry of \`_describe\`: a colon ends the name. */
function described(name: string, help: string): string {
  return quoted(`${name}:${help}`);
}

function zsh(places: readonly Place[]): string {
  return `#compdef flowfabric
# Completion of flowfabric for zsh. Load it with: source <(flowfabric completion zsh)
_flowfabric() {
  local at='' skip='' word i
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    word="\${words[i]}"
    if [[ -n $skip ]]; then skip=''; continue; fi
    case "$word" in ${patterns(valueOptions(places))}) skip=1; continue ;; esac
    case "\${at:+$at }$word" in ${patterns(pathsBelow(places))}) at="\${at:+$at }$word" ;; esac
  done
  case "$at \${words[CURRENT-1]}" in
${choicesOf(places)
  .map(({ at, choices }) => `    ${patterns(at)}) compadd -- ${choices.join(' ')}; return ;;`)
  .join('\n')}
  esac
  if [[ -n $skip ]]; then _files; return; fi
  case "$at" in
${places.map(zshPlace).join('\n')}
  esac
  _describe 'flowfabric' found
}
if [[ "\${funcstack[1]}" == _flowfabric ]]; then _flowfabric "$@"; else compdef _flowfabric flowfabric; fi
`;
}

function zshPlace({ path, commands, choices, options }: Place): string {
  const words = [...commands, ...choices.map((name) => ({ name, help: '' }))];
  return `    ${quoted(path)})
      if [[ "\${words[CURRENT]}" == -* ]]; then
        found=(${options.map(({ name, help }) => described(name, help)).join(' ')})
      else
        found=(${words.map(({ name, help }) => described(name, help)).join(' ')})
      fi ;;`;
}

function fish(places: readonly Place[]): string {
  return `# Completion of flowfabric for fish. Load it with: flowfabric completion fish | source
function __flowfabric_at
  set -l at ''
  set -l skip ''
  set -l words (commandline -opc)
  for word in $words[2..-1]
    if test -n "$skip"
      set skip ''
    else if contains -- $word ${valueOptions(places).join(' ')}
      set skip 1
    else
      set -l further (string trim -- "$at $word")
      if contains -- $further ${pathsBelow(places).map(quoted).join(' ')}
        set at $further
      end
    end
  end
  test "$at" = "$argv[1]"
end
complete -c flowfabric -f
${places.flatMap(fishPlace).join('\n')}
`;
}

function fishPlace({ path, commands, choices, options }: Place): string[] {
  const at = `complete -c flowfabric -n "__flowfabric_at '${path}'"`;
  return [
    ...commands.map(({ name, help }) => `${at} -a ${name} -d ${fishText(help)}`),
    ...choices.map((choice) => `${at} -a ${choice}`),
    ...options.map(
      (option) => `${at} -l ${option.name.slice(2)}${fishValue(option)} -d ${fishText(option.help)}`,
    ),
  ];
}

function fishValue({ takesValue, choices }: OptionEntry): string {
  if (!takesValue) return '';
  return choices === null ? ' -r -F' : ` -x -a ${quoted(choices.join(' '))}`;
}

/** Fish escapes quotes with a backslash. */
function fishText(text: string): string {
  return `'${text.replaceAll('\\', String.raw`\\`).replaceAll("'", String.raw`\'`)}'`;
}
