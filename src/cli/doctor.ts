/**
 * `sluice doctor`: checks everything that tends to go wrong and says what to do next. Works with a running server and
 * without one, and changes nothing. Exit code 0: everything is OK; 1: errors; 2: warnings only.
 */

import { isRestoreUnfinished } from '../backup/notes.ts';
import { LogForbiddenError } from '../log.ts';
import type { LogInspection } from '../log/continuity.ts';
import { problemOfUnmigratedFolder, refuseMigratedFolder } from '../migration/marker.ts';
import {
  failed,
  type Check,
  checkBackup,
  checkDatabase,
  checkDisk,
  checkFolder,
  checkKeys,
  checkPlans,
  checkSettings,
  type DoctorParts,
  type DoctorShell,
  type Finding,
  refusesStart,
} from './doctor-checks.ts';
import {
  checkBacklog,
  checkClock,
  checkKafka,
  checkLedger,
  checkLog,
  checkReadiness,
  checkStore,
} from './doctor-data.ts';
import type { FlagsRead } from '../config/flags.ts';
import { readArguments } from './arguments.ts';
import { readSettings } from './location.ts';
import { pause } from './shell.ts';
import { bold, dim, indented, printable, wrap } from './table.ts';
import { messageOf } from '../errors.ts';

const SIGNS = { ok: '✓', warning: '!', error: '✗' } as const;
const TEXT_COLUMNS = 96;

/** The name is the one of its findings, also if it fails to run. */
type NamedCheck = readonly [name: string, check: Check];
type NamedFinding = Required<Finding>;

const FOLDER_CHECKS: readonly NamedCheck[] = [
  ['data folder', checkFolder],
  ['data folder', checkIsRestored],
  ['disk', checkDisk],
];
const CHECKS_OF_DATA: readonly NamedCheck[] = [
  ['store', checkStore],
  ['clock', checkClock],
  ['backlog', checkBacklog],
  ['ledger', checkLedger],
  ['keys', checkKeys],
  ['plans', checkPlans],
  ['backup', checkBackup],
];

export async function runDoctor(args: readonly string[], shell: DoctorShell): Promise<number> {
  const flags = readArguments('doctor', args);
  flags.refuse(flags.positionals);
  if (flags.mistakes.length > 0) throw flags.error();
  const findings = await examineWith(shell, flags);
  const code = exitCodeOf(findings);
  if (flags.isJson) shell.out(indented({ ok: code === 0, findings }));
  else shell.out(`${findings.map(describe).join('\n')}\n\n${summary(code)}\n`);
  return code;
}

/** Without a folder, or a database, nothing else can be checked. */
async function examine(parts: DoctorParts): Promise<NamedFinding[]> {
  const { storeUrl, logUrl } = parts.config;
  const findings = await attempt('settings', checkSettings, parts);
  const essential: readonly NamedCheck[] = [
    ...(storeUrl !== '' && logUrl === '' ? [['data folder', checkIsMigrated] as const] : []),
    ...(storeUrl === '' ? [] : [['database', checkDatabase] as const]),
    ...(logUrl === '' ? FOLDER_CHECKS : []),
    ...(storeUrl === '' ? [['store', checkIsHere] as const, ['data folder', checkIsOneInstallation] as const] : []),
  ];
  for (const [name, check] of essential) {
    const found = await attempt(name, check, parts);
    findings.push(...found);
    if (name !== 'disk' && found.some(({ state }) => state === 'error')) return findings;
  }
  const checkOfLog: NamedCheck = logUrl === '' ? ['log', checkLog] : ['Kafka', checkKafka];
  const checks: readonly NamedCheck[] = [['server', checkReadiness], checkOfLog, ...CHECKS_OF_DATA];
  for (const [name, check] of checks) findings.push(...(await attempt(name, check, parts)));
  // A store or a Kafka that cannot be opened fails most checks with the same message: its own comes first, and is enough.
  return findings.filter(({ message }, index) => findings.findIndex((other) => other.message === message) === index);
}

/** Migrated data has to be checked in PostgreSQL: the files here are outdated. */
async function checkIsHere({ dataFolder }: DoctorParts): Promise<Finding[]> {
  refuseMigratedFolder(dataFolder);
  return [];
}

/** As at start: with PostgreSQL, embedded data left in the folder would be missing. */
async function checkIsMigrated({ dataFolder }: DoctorParts): Promise<Finding[]> {
  return refusesStart(problemOfUnmigratedFolder(dataFolder));
}

/** With parts of different installations, all further results would be wrong. */
async function checkIsOneInstallation({ problemOfInstallation, dataFolder }: DoctorParts): Promise<Finding[]> {
  return refusesStart(problemOfInstallation(dataFolder));
}

/** Half of a restore looks like damage, for which the advice would be wrong. */
async function checkIsRestored({ dataFolder }: DoctorParts): Promise<Finding[]> {
  if (!isRestoreUnfinished(dataFolder)) return [];
  const message = 'a restore into it is running or was interrupted, so it is incomplete';
  return [failed(message, 'If none is running, run the same "sluice restore" again: it starts over.')];
}

/** A check that throws is a finding, too. */
async function attempt(name: string, check: Check, parts: DoctorParts): Promise<NamedFinding[]> {
  try {
    return (await check(parts)).map((finding) => Object.assign({ check: name }, finding));
  } catch (error) {
    if (error instanceof LogForbiddenError) {
      const message = `not checked: this user may not read the topic (${error.message})`;
      const advice = 'An edge works without the right Read. Run it as the user of a processor to check this, too.';
      return [{ check: name, state: 'warning', message, advice }];
    }
    return [{ check: name, state: 'error', message: `the check failed: ${messageOf(error)}`, advice: null }];
  }
}

/**
 * Opens the store and the log on first use, for all checks together. A Kafka that could not be opened is not tried again,
 * for the store either: each try takes seconds and may fail with other words.
 */
async function examineWith(shell: DoctorShell, flags: FlagsRead): Promise<NamedFinding[]> {
  const config = readSettings(flags, shell.env);
  const logWarnings: string[] = [];
  const log = openedOnce(() => shell.findLogReader(config, (message) => logWarnings.push(message)));
  const store = openedOnce(async () => {
    if (config.logUrl !== '') await log.get();
    return shell.openStore(config);
  });
  let inspection: Promise<LogInspection> | undefined;
  const findings = await examine({
    pause: (milliseconds) => pause(milliseconds, shell.stop),
    ...shell,
    config,
    dataFolder: config.dataFolder,
    settingMistakes: flags.mistakes,
    isDeep: flags.switches.has('deep'),
    store: store.get,
    log: log.get,
    logWarnings,
    inspectLocalLog: () => {
      inspection ??= store
        .get()
        .catch(() => null)
        .then((found) => shell.inspectLocalLog(config, found));
      return inspection;
    },
  });
  await store.close();
  await log.close();
  return findings;
}

/** One that could not be opened is a finding, and need not be closed. */
function openedOnce<T extends { close(): Promise<void> }>(open: () => Promise<T | undefined>) {
  let opened: Promise<T | undefined> | undefined;
  return {
    get: (): Promise<T | undefined> => {
      opened ??= open();
      return opened;
    },
    close: async (): Promise<void> => (await opened?.catch(() => undefined))?.close(),
  };
}

function exitCodeOf(findings: readonly Finding[]): number {
  if (findings.some(({ state }) => state === 'error')) return 1;
  return findings.some(({ state }) => state === 'warning') ? 2 : 0;
}

const NAME_COLUMNS = 12;

function describe({ check, state, message, advice }: NamedFinding): string {
  const indent = ' '.repeat(NAME_COLUMNS + 3);
  const [first = '', ...rest] = wrap(printable(message), TEXT_COLUMNS - indent.length);
  const lines = [`${bold(SIGNS[state])} ${check.padEnd(NAME_COLUMNS)} ${first}`, ...rest.map((line) => indent + line)];
  if (advice !== null) {
    const advised = wrap(`→ ${printable(advice)}`, TEXT_COLUMNS - indent.length);
    lines.push(...advised.map((line) => `${indent}${dim(line)}`));
  }
  return lines.join('\n');
}

function summary(code: number): string {
  if (code === 0) return 'Everything is OK.';
  return code === 1 ? 'Errors found: see ✗ above.' : 'OK, with warnings: see ! above.';
}
