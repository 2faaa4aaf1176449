/**
 * `sluice completion bash|zsh|fish`: prints a script that completes commands, subcommands, flags and the values that a
 * flag is limited to. All of it comes from the table of commands, so it cannot differ from what the commands take. The
 * script holds everything it needs: completing starts no process.
 */

import { suggestion } from '../config/flags.ts';
import { readArguments } from './arguments.ts';
import { ALL_COMMANDS, type Command, COMPLETION_SHELLS, type Flag } from './commands.ts';
import type { Shell } from './shell.ts';

export async function runCompletion(args: readonly string[], { out }: Pick<Shell, 'out'>): Promise<number> {
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
  out(completionScript(shell));
  return 0;
}

export function completionScript(shell: (typeof COMPLETION_SHELLS)[number]): string {
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](stepsOf());
}

/** What can follow the words of a path: `keys`, `keys create`, `help keys`; at first, nothing was typed yet. */
interface Step {
  readonly path: string;
  readonly commands: readonly (readonly [name: string, summary: string])[];
  readonly flags: readonly (readonly [name: string, flag: Flag])[];
  readonly argument: Flag | undefined;
}

const HELP_FLAG = ['help', { help: 'show help' }] as const;

function stepsOf(): Step[] {
  const first: Step = {
    path: '',
    commands: namesOf(ALL_COMMANDS),
    flags: [HELP_FLAG, ['version', { help: 'show the version' }]],
    argument: undefined,
  };
  // `sluice help keys` is followed by the subcommands of keys, and by nothing else.
  const ofHelp = Object.entries(ALL_COMMANDS).flatMap(([name, { commands }]): Step[] => {
    if (commands === undefined) return [];
    return [{ path: `help ${name}`, commands: namesOf(commands), flags: [], argument: undefined }];
  });
  return [first, ...stepsIn(ALL_COMMANDS, ''), ...ofHelp];
}

function stepsIn(commands: Readonly<Record<string, Command>>, before: string): Step[] {
  return Object.entries(commands).flatMap(([name, command]) => {
    const path = before === '' ? name : `${before} ${name}`;
    const { argument, flags } = command;
    const own: Step = {
      path,
      commands: namesOf(path === 'help' ? ALL_COMMANDS : (command.commands ?? {})),
      flags: [...Object.entries(flags), HELP_FLAG],
      argument,
    };
    return [own].concat(stepsIn(command.commands ?? {}, path));
  });
}

function namesOf(commands: Readonly<Record<string, Command>>): [string, string][] {
  return Object.entries(commands).map(([name, { summary }]) => [name, summary]);
}

/** For a shell: nothing in it is special. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function bashScript(steps: readonly Step[]): string {
  const paths = steps.filter(({ path }) => path !== '').map(({ path }) => quoted(path));
  const values = steps.flatMap(({ path, flags }) =>
    flags.filter(([, { value }]) => value !== undefined).map(([name, flag]) => [`${path}:--${name}`, flag] as const),
  );
  const valueCases = values.map(([pattern, flag]) => `    ${quoted(pattern)}) ${bashValue(flag)} ;;`);
  const wordCases = steps.map(({ path, commands, flags, argument }) => {
    const words = [
      ...commands.map(([name]) => name),
      ...(argument?.choices ?? []),
      ...flags.map(([name]) => `--${name}`),
    ];
    const files = argument?.value === 'FILE' ? ' files=yes' : '';
    return `    ${quoted(path)}) words=${quoted(words.join(' '))}${files} ;;`;
  });
  return `# Completion of sluice for bash. Made by: sluice completion bash
_sluice() {
  local current previous word path words files i IFS=$' \\t\\n'
  COMPREPLY=()
  current=\${COMP_WORDS[COMP_CWORD]}
  previous=\${COMP_WORDS[COMP_CWORD - 1]}
  # bash splits --format=csv in three.
  if [[ $current == '=' ]]; then
    current=
  elif [[ $previous == '=' ]]; then
    previous=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  path=
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${path:+$path }\${COMP_WORDS[i]}"
    case "$word" in
      ${paths.join(' | ')}) path=$word ;;
    esac
  done
  case "$path:$previous" in
${valueCases.join('\n')}
  esac
  words= files=
  case "$path" in
${wordCases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ \${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  if [[ $files && $current != -* ]]; then _sluice_files -f; fi
}

_sluice_files() {
  local IFS=$'\\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY+=($(compgen "$1" -- "$current"))
}

complete -F _sluice sluice
`;
}

/** Completes the value of a flag, and is done. */
function bashValue({ value, choices }: Flag): string {
  if (choices !== undefined) return `COMPREPLY=($(compgen -W ${quoted(choices.join(' '))} -- "$current")); return`;
  if (value === 'FILE') return '_sluice_files -f; return';
  return value === 'FOLDER' ? '_sluice_files -d; return' : 'return';
}

function zshScript(steps: readonly Step[]): string {
  const functions = steps.map((step) => {
    const { path, commands, flags, argument } = step;
    const specs = flags.map(([name, flag]) => quoted(zshFlag(name, flag)));
    if (commands.length === 0) {
      const own = argument === undefined ? [] : [quoted(`1:${argument.value ?? ''}:${zshAction(argument)}`)];
      return `${zshName(path)}() {\n  _arguments ${[...specs, ...own].join(' \\\n    ')}\n}\n`;
    }
    const descriptions = commands.map(([name, summary]) => `      ${quoted(`${name}:${summary}`)}`);
    const next = commands
      .map(([name]) => `${path} ${name}`.trim())
      .filter((below) => steps.some((other) => other.path === below))
      .map((below) => `      ${below.split(' ').at(-1)}) ${zshName(below)} ;;`);
    return `${zshName(path)}() {
  local curcontext="$curcontext" state line
  typeset -A opt_args
  _arguments -C ${[...specs, "'1:command:->command'", "'*::argument:->argument'"].join(' ')}
  if [[ $state == command ]]; then
    local -a commands
    commands=(
${descriptions.join('\n')}
    )
    _describe -t commands command commands
  elif [[ $state == argument ]]; then
    case $line[1] in
${next.join('\n')}
    esac
  fi
}
`;
  });
  return `#compdef sluice
# Completion of sluice for zsh. Made by: sluice completion zsh
${functions.join('\n')}
if [[ "$funcstack[1]" == _sluice ]]; then
  _sluice "$@"
else
  compdef _sluice sluice
fi
`;
}

function zshName(path: string): string {
  return ['_sluice', ...path.split(' ').filter((word) => word !== '')].join('_');
}

function zshFlag(name: string, flag: Flag): string {
  const help = flag.help.replaceAll(/[[\]\\:]/g, String.raw`\$&`);
  return flag.value === undefined ? `--${name}[${help}]` : `--${name}=[${help}]:${flag.value}:${zshAction(flag)}`;
}

function zshAction({ value, choices }: Flag): string {
  if (choices?.some((choice) => choice.endsWith('=')) === true) return `{compadd -S "" -- ${choices.join(' ')}}`;
  if (choices !== undefined) return `(${choices.join(' ')})`;
  if (value === 'FILE') return '_files';
  return value === 'FOLDER' ? '_files -/' : ' ';
}

function fishScript(steps: readonly Step[]): string {
  const paths = steps.filter(({ path }) => path !== '').map(({ path }) => quoted(path));
  const lines = steps.flatMap(({ path, commands, flags, argument }) => {
    const start = `complete -c sluice -n ${quoted(`__sluice_is_at "${path}"`)}`;
    return [
      ...commands.map(([name, summary]) => `${start} -a ${name} -d ${fishQuoted(summary)}`),
      ...flags.map(([name, flag]) => `${start} -l ${name}${fishValue(flag)} -d ${fishQuoted(flag.help)}`),
      ...(argument?.choices === undefined ? [] : [`${start} -a ${fishQuoted(argument.choices.join(' '))}`]),
      ...(argument?.value === 'FILE' ? [`${start} -F`] : []),
    ];
  });
  return `# Completion of sluice for fish. Made by: sluice completion fish
function __sluice_is_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l path ''
    for word in $words
        set -l longer (string trim -- "$path $word")
        if contains -- "$longer" ${paths.join(' ')}
            set path "$longer"
        end
    end
    test "$path" = "$argv[1]"
end

complete -c sluice -f
${lines.join('\n')}
`;
}

function fishValue({ value, choices }: Flag): string {
  if (value === undefined) return '';
  if (choices !== undefined) return ` -x -a ${fishQuoted(choices.join(' '))}`;
  if (value === 'FILE') return ' -r -F';
  return value === 'FOLDER' ? " -x -a '(__fish_complete_directories)'" : ' -x';
}

/** In single quotes fish knows two escapes. */
function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
