/**
 * `sluice completion bash|zsh|fish` prints a short script for the shell. At each Tab it runs `sluice completion --words`
 * with the words so far, which prints what can come next: commands, subcommands, flags, the values that a flag is limited
 * to, or that files or folders follow. That comes from the table of commands, so it cannot differ from what the commands
 * take. The script calls the Node and the file that printed it: `sluice` may be an alias, or another Node the first in
 * PATH.
 */

import { suggestion } from '../config/flags.ts';
import { readArguments } from './arguments.ts';
import { ALL_COMMANDS, type Command, COMPLETION_SHELLS, type Flag } from './commands.ts';
import type { Shell } from './shell.ts';

/** In place of candidates: the shell completes those. */
const FILES = ':files';
const FOLDERS = ':folders';

const HELP_FLAG: Flag = { help: 'show help' };
/** What comes before any command. */
const START: Command = { summary: '', flags: { version: { help: 'show the version' } }, commands: ALL_COMMANDS };

export async function runCompletion(args: readonly string[], { out }: Pick<Shell, 'out'>): Promise<number> {
  // Only the scripts call it so. After "--" nothing is a flag of this command.
  if (args[0] === '--words' && args[1] === '--') {
    out(
      candidatesFor(args.slice(2))
        .map((line) => `${line}\n`)
        .join(''),
    );
    return 0;
  }
  const flags = readArguments('completion', args);
  const { mistakes } = flags;
  const [given, ...others] = flags.positionals;
  flags.refuse(others, 'one shell at a time');
  const shell = COMPLETION_SHELLS.find((name) => name === given);
  const expected = 'expected bash, zsh or fish';
  if (given === undefined) mistakes.push(`no shell given; ${expected}`);
  else if (shell === undefined) {
    mistakes.push(`"${given}" is not a supported shell; ${expected}${suggestion(given, COMPLETION_SHELLS)}`);
  }
  if (shell === undefined || mistakes.length > 0) throw flags.error();
  out(completionScript(shell, process.argv.slice(0, 2)));
  return 0;
}

/**
 * What can stand in place of the last word, which may be empty or begun: one line each, with a tab before what it does.
 * The shell leaves out what does not match.
 */
export function candidatesFor(words: readonly string[]): string[] {
  // bash splits --format=csv in three.
  const before = (words.at(-1) === '=' ? [...words, ''] : words).filter((word) => word !== '=');
  const current = before.pop() ?? '';
  // `sluice help keys` is followed by the subcommands of keys, and by nothing else.
  const isHelp = before[0] === 'help';
  if (isHelp) before.shift();
  let command = START;
  for (const word of before) command = ownOf(command.commands, word) ?? command;
  const { argument, flags } = command;
  const commands = Object.entries(command.commands ?? {}).map(([name, { summary }]) => `${name}\t${summary}`);
  if (isHelp) return commands;
  const [prefix = '', inSameWord] = /^--([^=]+)=/.exec(current) ?? [];
  const [, inWordBefore] = /^--(.+)/.exec(before.at(-1) ?? '') ?? [];
  const flag = ownOf(flags, inSameWord ?? inWordBefore ?? '');
  if (flag?.value !== undefined) return flag.choices?.map((choice) => prefix + choice) ?? pathsFor(flag);
  return [
    ...commands,
    ...(argument?.choices ?? []),
    ...Object.entries({ ...flags, help: HELP_FLAG }).map(([name, { help }]) => `--${name}\t${help}`),
    ...(argument === undefined || current.startsWith('-') ? [] : pathsFor(argument)),
  ];
}

function ownOf<T>(entries: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return entries !== undefined && Object.hasOwn(entries, name) ? entries[name] : undefined;
}

function pathsFor({ value }: Flag): string[] {
  if (value === 'FILE') return [FILES];
  return value === 'FOLDER' ? [FOLDERS] : [];
}

/** `program`: the words that start this program. */
export function completionScript(shell: (typeof COMPLETION_SHELLS)[number], program: readonly string[]): string {
  const call = `${program.map(quoted).join(' ')} completion --words --`;
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](call);
}

/** For all three shells: nothing in it is special. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function bashScript(call: string): string {
  return `# Completion of sluice for bash. Made by: sluice completion bash
_sluice() {
  local IFS=$'\\n' current=\${COMP_WORDS[COMP_CWORD]} name summary
  COMPREPLY=()
  if [[ $current == '=' ]]; then current=; fi
  while IFS=$'\\t' read -r name summary; do
    case $name in
      ${FILES}) COMPREPLY+=($(compgen -f -- "$current")); compopt -o filenames 2>/dev/null ;;
      ${FOLDERS}) COMPREPLY+=($(compgen -d -- "$current")); compopt -o filenames 2>/dev/null ;;
      "$current"*) COMPREPLY+=("$name") ;;
    esac
  done < <(${call} "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ \${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _sluice sluice
`;
}

/** zsh replaces an alias before it completes, so in a checkout the command is `sluice.js`. */
function zshScript(call: string): string {
  return `#compdef sluice sluice.js
# Completion of sluice for zsh. Made by: sluice completion zsh
_sluice() {
  local line candidates=() prefixes=()
  for line in "\${(@f)$(${call} "\${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      ${FILES}) compset -P '--*='; _files ;;
      ${FOLDERS}) compset -P '--*='; _files -/ ;;
      *=) prefixes+=("$line") ;;
      ?*) candidates+=("\${line/$'\\t'/:}") ;;
    esac
  done
  _describe sluice candidates -- prefixes -S ''
}
if [[ "$funcstack[1]" == _sluice ]]; then _sluice "$@"; else compdef _sluice sluice sluice.js; fi
`;
}

function fishScript(call: string): string {
  return `# Completion of sluice for fish. Made by: sluice completion fish
function __sluice_candidates
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l flag (string match -r -- '^--[^=]+=' "$current")
    set -l path (string replace -r -- '^--[^=]+=' '' "$current")
    for line in (${call} $words "$current" 2>/dev/null)
        switch $line
            case ${FILES}
                __fish_complete_path "$path" | string replace -r -- '^' "$flag"
            case ${FOLDERS}
                __fish_complete_directories "$path" | string replace -r -- '^' "$flag"
            case '*'
                printf '%s\\n' $line
        end
    end
end
complete -c sluice -f -a '(__sluice_candidates)'
`;
}
