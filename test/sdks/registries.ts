/**
 * Gets the SDKs of other makers from their registries, each by its language's ordinary client and at a pinned version,
 * into a cache that outlives the checkout. They are no dependencies of this package: `npm ci` stays small, and no install
 * script of theirs is run. A folder appears in the cache complete or not at all, so several processes may get it at once.
 */

import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { removeFolder } from '../server.ts';
import { findTool } from '../tools.ts';

const run = promisify(execFile);

const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sluice');
const GET_MS_MAX = 300_000;

/** The programs that `npm test` installs, where it can, before the tests that import this file. */
export const SDK_TOOLS: readonly string[] = ['python3', 'pip3', 'java', 'mvn'];

/** For `test(name, { skip })`: false, or which program is missing here. On a CI machine that is a failure. */
export function whyNot(...tools: readonly string[]): string | false {
  const missing = tools.filter((name) => findTool(name) === undefined);
  if (missing.length === 0) return false;
  const reason = `needs ${missing.join(' and ')}: install it`;
  if (process.env['CI'] !== undefined) throw new Error(`cannot run in CI: ${reason}`);
  return reason;
}

/** The folder whose `node_modules` holds the packages. */
export function npmPackages(name: string, packages: readonly string[]): Promise<string> {
  const options = ['--ignore-scripts', '--omit=optional', '--no-save', '--no-audit', '--no-fund', '--loglevel=error'];
  return inCache(npmFolder(name, packages), 'npm', (folder) => [
    'install',
    ...options,
    '--prefix',
    folder,
    ...packages,
  ]);
}

/** The same folder, or undefined if the packages were never fetched. */
export function npmPackagesInCache(name: string, packages: readonly string[]): string | undefined {
  const folder = join(CACHE, npmFolder(name, packages));
  return existsSync(folder) ? folder : undefined;
}

function npmFolder(name: string, packages: readonly string[]): string {
  return `npm-${name}-${versionsOf(packages, '@')}`;
}

/** The folder for PYTHONPATH. */
export function pythonPackage(name: string): Promise<string> {
  const options = ['--quiet', '--disable-pip-version-check', '--only-binary', ':all:'];
  return inCache(`pip-${name.replace('==', '-')}`, 'pip3', (folder) => [
    'install',
    ...options,
    '--target',
    folder,
    name,
  ]);
}

/** The folder with the jars that a pom.xml names. */
export function mavenJars(pom: string): Promise<string> {
  const version = hash('sha256', readFileSync(pom, 'utf8')).slice(0, 8);
  const goal = 'dependency:copy-dependencies';
  return inCache(`maven-segment-${version}`, 'mvn', (folder) => [
    ...['-B', '-q', '-f', pom, goal, '-DincludeScope=runtime'],
    `-DoutputDirectory=${folder}`,
  ]);
}

function versionsOf(packages: readonly string[], separator: string): string {
  return packages.map((one) => one.slice(one.lastIndexOf(separator) + 1)).join('-');
}

/** Runs the program, which fills a folder, unless the cache has it. */
async function inCache(name: string, tool: string, args: (folder: string) => readonly string[]): Promise<string> {
  const folder = join(CACHE, name);
  if (existsSync(folder)) return folder;
  const program = findTool(tool);
  if (program === undefined) throw new Error(`${tool} not found, which gets ${name}`);
  console.log(`${tool} fetches ${name} into ${folder}…`);
  mkdirSync(CACHE, { recursive: true });
  const temporary = mkdtempSync(`${folder}-`);
  try {
    await run(program, args(temporary), { timeout: GET_MS_MAX });
    renameSync(temporary, folder);
  } catch (error) {
    removeFolder(temporary);
    // Another process was quicker.
    if (!existsSync(folder)) throw new Error(`${tool} could not get ${name}`, { cause: error });
  }
  return folder;
}
