/**
 * The programs that some tests need besides Node: strace, mkfs.ext4, mount, perl, chromium, PostgreSQL, Java, Maven, Python,
 * and the library libfaketime. They are looked for in PATH and where administrators and Debian keep theirs. `ensureTools` installs what is missing
 * where that is simple and allowed (root on a Debian, with apt-get), and says what it does. What cannot be had is named
 * with the reason, for a test to skip visibly.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, globSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Root's programs are often not in the PATH of others, nor in that of a service. */
const MORE_FOLDERS = ['/usr/local/sbin', '/usr/sbin', '/sbin'];
/** Debian keeps PostgreSQL's programs out of everyone's PATH, by version. */
const POSTGRES_FOLDERS = '/usr/lib/postgresql/*/bin';
/** A library that is loaded into a program to show it another time; the kind for programs with threads. */
export const FAKETIME = 'libfaketimeMT.so.1';
const FAKETIME_PLACES = `/usr/{lib,lib/*,local/lib}/faketime/${FAKETIME}`;

/** Any of them is `BROWSER`. */
const BROWSERS = ['chromium-headless-shell', 'chromium', 'google-chrome'];
export const BROWSER = 'chromium';

const PACKAGES: Readonly<Record<string, string>> = {
  strace: 'strace',
  'mkfs.ext4': 'e2fsprogs',
  mount: 'mount',
  umount: 'mount',
  perl: 'perl-base',
  // The part of Chromium that shows no windows: half of the CPU time, and of the packages.
  [BROWSER]: 'chromium-headless-shell',
  initdb: 'postgresql',
  java: 'default-jre-headless',
  mvn: 'maven',
  python3: 'python3-minimal',
  pip3: 'python3-pip',
  go: 'golang-go',
  [FAKETIME]: 'libfaketime',
};

export interface MissingTool {
  readonly name: string;
  readonly reason: string;
}

/** The path of a program; undefined when there is none. */
export function findTool(name: string): string | undefined {
  if (name === FAKETIME) return globSync(FAKETIME_PLACES)[0];
  if (name === BROWSER) return BROWSERS.map(findProgram).find((file) => file !== undefined);
  return findProgram(name);
}

function findProgram(name: string): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), ...MORE_FOLDERS, ...postgresFolders()];
  return folders
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, name))
    .find(isProgram);
}

/** The newest first. */
function postgresFolders(): string[] {
  const version = (folder: string): number => Number(/(\d+)\/bin$/.exec(folder)?.[1] ?? 0);
  return globSync(POSTGRES_FOLDERS).sort((a, b) => version(b) - version(a));
}

/** Finds or installs the programs; `report` gets a line for each thing that is done or cannot be. */
export async function ensureTools(names: readonly string[], report: (line: string) => void): Promise<MissingTool[]> {
  const absent = names.filter((name) => findTool(name) === undefined);
  if (absent.length === 0) return [];
  const hindrance = installHindrance();
  const packages = absent.flatMap((name) => PACKAGES[name] ?? []);
  let failure = '';
  if (hindrance === undefined && packages.length > 0) {
    failure = await install([...new Set(packages)], report);
  }
  const missing = absent
    .filter((name) => findTool(name) === undefined)
    .map((name) => ({ name, reason: hindrance ?? (failure || 'it is not known which package has it') }));
  for (const { name, reason } of missing) {
    report(`${name} is missing and cannot be installed: ${reason}. The tests that need it will be skipped.`);
  }
  return missing;
}

function installHindrance(): string | undefined {
  if (process.platform !== 'linux') return `this is ${process.platform}, not Linux`;
  if (process.getuid?.() !== 0) return 'that needs root';
  if (findTool('apt-get') === undefined) return 'there is no apt-get';
  return undefined;
}

/** Returns what went wrong, or nothing. */
async function install(packages: readonly string[], report: (line: string) => void): Promise<string> {
  report(`Tests need ${packages.join(', ')}: installing with apt-get…`);
  const options = ['-y', '-q', '--no-install-recommends'];
  const first = await run('apt-get', ['install', ...options, ...packages]);
  if (first === '') return '';
  // The lists of packages are often absent in containers, or too old.
  report('Not in the package lists yet: running apt-get update…');
  const update = await run('apt-get', ['update', '-q']);
  if (update !== '') return update;
  return run('apt-get', ['install', ...options, ...packages]);
}

async function run(command: string, args: readonly string[]): Promise<string> {
  const child = spawn(command, args, {
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code === 0) return '';
  return `${command} ${args[0]} failed: ${said.trim().split('\n').at(-1) ?? `code ${code}`}`;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
