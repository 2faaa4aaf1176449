/**
 * Whether this user may use a data folder: every file and folder that Sluice makes in it is a file or a folder as it should
 * be, and may be read and written. A server asks before it opens any of them, and `sluice doctor` asks too, because a file
 * that one user may not open looks damaged halfway through a start, and nothing in it is. Names that Sluice does not make
 * are left alone (`lost+found`). Limit: this is the operating system's word for now; root may use everything.
 */

import { accessSync, constants, lstatSync, readdirSync, readlinkSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { logFolderOf } from './files.ts';
import { OperatorError } from '../errors.ts';

const DATABASE = String.raw`\.db(-wal|-shm|-journal)?`;
const FILES = new RegExp(
  `^(lock\\.db|server\\.(pid|url)|log-(ends|warnings)|retention-time|migrated\\.json|(keys|store)${DATABASE})$`,
);
/** Not segments that were given up (`.lost`): only their names are used, and an operator may have made them. */
const LOG_FILES = new RegExp(`^(name|installation|backup-lock${DATABASE}|\\d{16}\\.log(\\.zst|\\.missing)?)$`);
const SHOWN_MAX = 5;

type Kind = 'file' | 'folder';

interface AccessProblem {
  readonly path: string;
  /** Such as "may not be read by this user: …" */
  readonly what: string;
  readonly cause: 'permission' | 'read-only disk' | 'wrong file';
}

/** None where there is no data folder yet. */
export function accessProblemsOf(dataFolder: string): AccessProblem[] {
  return problemsIn(dataFolder, problemOf);
}

/**
 * For root, who may use everything: what a server that runs as the owner of the folder may not be able to use. None for
 * other users, who find that out by `accessProblemsOf`.
 */
export function ownerProblemsOf(dataFolder: string): AccessProblem[] {
  const owner = statSync(dataFolder, { throwIfNoEntry: false })?.uid;
  if (owner === undefined || process.getuid?.() !== 0) return [];
  return problemsIn(dataFolder, (path) => {
    const uid = statSync(path, { throwIfNoEntry: false })?.uid ?? owner;
    if (uid === owner) return undefined;
    return { path, what: `belongs to uid ${uid}, and the data folder to uid ${owner}`, cause: 'permission' };
  });
}

function problemsIn(
  dataFolder: string,
  problemOf: (path: string, kind: Kind) => AccessProblem | undefined,
): AccessProblem[] {
  const folder = resolve(dataFolder);
  const problems: AccessProblem[] = [];
  for (const { path, files } of [
    { path: folder, files: FILES },
    { path: logFolderOf(folder), files: LOG_FILES },
  ]) {
    if (!isThere(path)) continue;
    const problem = problemOf(path, 'folder');
    // It may not be read itself.
    if (problem !== undefined) return [...problems, problem];
    const names = readdirSync(path).filter((name) => files.test(name));
    problems.push(...names.flatMap((name) => problemOf(join(path, name), 'file') ?? []));
  }
  return problems;
}

/** For a server, before it opens anything in the folder. */
export function refuseInaccessibleFiles(dataFolder: string): void {
  refuse(dataFolder, accessProblemsOf(dataFolder));
}

/** For a command, which may have to read only. */
export function refuseUnreadableFolder(dataFolder: string): void {
  const path = resolve(dataFolder);
  if (deniedBy(path, constants.R_OK | constants.X_OK) !== 'EACCES') return;
  const problem = problemOf(path, 'folder');
  if (problem !== undefined) refuse(dataFolder, [problem]);
}

function refuse(dataFolder: string, problems: readonly AccessProblem[]): void {
  if (problems.length === 0) return;
  const shown = problems.slice(0, SHOWN_MAX);
  const lines = shown.map(({ path, what }) => `  ${path} ${what}`);
  if (problems.length > SHOWN_MAX) lines.push(`  and ${problems.length - SHOWN_MAX} more`);
  // One for each cause, also of problems that are not shown.
  const firsts = new Map(problems.toReversed().map((problem) => [problem.cause, problem]));
  const advice = [...firsts.values()].map((problem) => accessAdvice(dataFolder, problem));
  throw new OperatorError(
    `The data folder ${resolve(dataFolder)} cannot be used as it is; nothing in it was opened or changed:\n` +
      [...lines, ...advice].join('\n'),
  );
}

/** For a file of the data folder that a running server may not use any more: `error` is the system's refusal. */
export function inaccessibleText(file: string, error: NodeJS.ErrnoException): string {
  const isWrongFile = error.code !== 'EACCES' && error.code !== 'EPERM';
  const problem = { path: resolve(file), what: '', cause: isWrongFile ? 'wrong file' : 'permission' } as const;
  return `${basename(file)} cannot be read: ${error.message}. ${accessAdvice(dirname(file), problem)}`;
}

export function accessAdvice(dataFolder: string, { path, cause }: AccessProblem): string {
  if (cause === 'read-only disk') {
    return 'Nothing in it is damaged, and nothing is to be moved. Mount the disk for writing, then start again. If it was writable before, the system may have found an error on it: look at dmesg, and check the disk first.';
  }
  if (cause === 'wrong file') {
    return `Move ${path} elsewhere, and put back what belongs there. Where there was nothing before, leave it out: Sluice makes it.`;
  }
  const folder = resolve(dataFolder);
  const [uid, gid] = [process.getuid?.(), process.getgid?.()];
  const owner = statSync(folder, { throwIfNoEntry: false })?.uid;
  const toThisUser = `as root: chown -R ${uid}:${gid} "${folder}" && chmod -R u+rwX "${folder}"`;
  if (owner === undefined || owner === uid) {
    return `This is not damage: remove and rename nothing. A server or a command was probably run as another user once. Give the files to this one, ${toThisUser}`;
  }
  return (
    `This is not damage: remove and rename nothing. Run Sluice as the owner of the folder: sudo -u '#${owner}' sluice … ` +
    `Only if no server runs as that user (it would end), give the files to this one, ${toThisUser}`
  );
}

function problemOf(path: string, kind: Kind): AccessProblem | undefined {
  try {
    const stat = statSync(path);
    const isRight = kind === 'file' ? stat.isFile() : stat.isDirectory();
    if (!isRight) return { path, what: `is ${kindOf(stat)}, and should be a ${kind}`, cause: 'wrong file' };
    return permissionProblemOf(path, kind, stat);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT')
      return { path, what: `cannot be looked at: ${message}`, cause: code === 'EACCES' ? 'permission' : 'wrong file' };
    // A file that was there when its folder was read may be gone: a server that runs removes some.
    if (!isThere(path)) return undefined;
    return {
      path,
      what: `is a link to ${readlinkSync(path)}, and nothing is there. Is a disk not mounted?`,
      cause: 'wrong file',
    };
  }
}

function permissionProblemOf(path: string, kind: Kind, { uid, gid, mode }: Stats): AccessProblem | undefined {
  const enter = kind === 'folder' ? constants.X_OK : 0;
  const [canRead, canWrite] = [deniedBy(path, constants.R_OK | enter), deniedBy(path, constants.W_OK)];
  if (canRead === undefined && canWrite === undefined) return undefined;
  if (canWrite === 'EROFS') return { path, what: 'is on a disk that is mounted read-only', cause: 'read-only disk' };
  if (canRead === 'ENOENT' || canWrite === 'ENOENT') return undefined;
  const denied = [canRead && 'read', canWrite && 'written'].filter(Boolean).join(' or ');
  const rights = `its owner is uid ${uid}, gid ${gid}, its mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`;
  const what = `may not be ${denied} by this user (uid ${process.getuid?.()}, gid ${process.getgid?.()}): ${rights}`;
  return { path, what, cause: 'permission' };
}

/** The code of the system's refusal; undefined where it allows it. */
export function deniedBy(path: string, wanted: number): string | undefined {
  try {
    accessSync(path, wanted);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

function kindOf(stat: Stats): string {
  if (stat.isDirectory()) return 'a folder';
  return stat.isFile() ? 'a file' : 'neither a file nor a folder';
}

/** Also a link that leads nowhere. */
function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}
