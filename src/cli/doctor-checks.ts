/**
 * The checks of `sluice doctor`: a check examines one thing and returns findings, each with what to do next. Checks
 * never change anything, and never throw for problems that they look for. Here: settings, data folder, disk, database,
 * keys, tracking plans and backups; `doctor-data.ts` checks the content of the log and the store.
 */

import { existsSync, readdirSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { leftoversOf, readLastBackup, readUnfinishedBackup } from '../backup/notes.ts';
import { type Config, formatSetting, SETTING_NAMES, SETTINGS } from '../config/config.ts';
import { withoutSecrets } from '../config/values.ts';
import { accessAdvice, accessProblemsOf, ownerProblemsOf } from '../data-folder/access.ts';
import type { LogReader } from '../log.ts';
import type { LogInspection } from '../log/continuity.ts';
import { logFolderOf } from '../data-folder/files.ts';
import { hasLostKeys, LOST_KEYS_ADVICE, lostKeysText } from '../data-folder/lost-keys.ts';
import type { KeyStore } from '../keys.ts';
import { DAY_MS, ENVIRONMENTS, HOUR_MS, MINUTE_MS } from '../model.ts';
import { describeMistakes, parsePlan } from '../plans/plan.ts';
import type { Store } from '../store.ts';
import { displayOf } from './keys.ts';
import { countOf, formatBytes, formatCount, formatSpan, localTime } from './local-time.ts';
import { onFoundKeys, type Shell } from './shell.ts';

export interface Finding {
  /** What it is about, if not what its check is named after. */
  readonly check?: string;
  readonly state: 'ok' | 'warning' | 'error';
  readonly message: string;
  /** What to do next; null if nothing. */
  readonly advice: string | null;
}

/** What the doctor needs of a segment of the log. */
export interface SegmentName {
  readonly file: string;
  readonly firstPosition: number;
  /** `lost`: given up by an operator. `missing`: only the mark where the log lost its end. */
  readonly state: 'records' | 'lost' | 'missing';
}

/** Whether a server holds the data folder, and the last process that noted so. */
interface LockHolder {
  readonly isHeld: boolean;
  readonly pid: number | null;
}

export interface DoctorShell extends Shell {
  /** Undefined if there is none yet. */
  readonly findLogReader: (config: Config, warn?: (message: string) => void) => Promise<LogReader | undefined>;
  readonly listSegments: (logFolder: string) => readonly SegmentName[];
  /**
   * What a start would report about the local log. `store`: undefined if there is none yet, null if it cannot be read.
   */
  readonly inspectLocalLog: (config: Config, store: Store | undefined | null) => Promise<LogInspection>;
  /** Whether parts of different installations are mixed, as a start would report it; null if not. */
  readonly problemOfInstallation: (dataFolder: string) => string | null;
  readonly lockHolderOf: (dataFolder: string) => LockHolder;
  readonly isBackupRunning: (logFolder: string) => boolean;
  /** On the disk of the folder, for users other than root. */
  readonly freeBytesOf: (dataFolder: string) => number;
  /** Problems in the store's file, as messages; none if it is intact. Deep: also links between rows. */
  readonly findingsInStore: (file: string, isDeep: boolean) => string[];
  readonly lookAtDatabase: (config: Config) => Promise<DatabaseFacts>;
  /** Between two checks; only for tests. */
  readonly pause?: (milliseconds: number) => Promise<void>;
}

export interface DoctorParts extends Omit<DoctorShell, 'findLogReader' | 'inspectLocalLog' | 'pause'> {
  readonly config: Config;
  readonly dataFolder: string;
  /** Settings that `sluice serve` would refuse. */
  readonly settingMistakes: readonly string[];
  readonly isDeep: boolean;
  /** Opened on first use, and closed after all checks. Undefined if there is none yet. */
  readonly store: () => Promise<Store | undefined>;
  /** Likewise. */
  readonly log: () => Promise<LogReader | undefined>;
  /** What opening the log warned of. */
  readonly logWarnings: readonly string[];
  readonly inspectLocalLog: () => Promise<LogInspection>;
  readonly pause: (milliseconds: number) => Promise<void>;
}

export interface DatabaseFacts {
  readonly version: string;
  /** False before the first start of a server. */
  readonly hasTables: boolean;
  /** Whether a unique index is missing, as a start would report it; null if none. */
  readonly problemOfIndexes: string | null;
  /** Daily partitions. */
  readonly days: number;
  readonly bytes: number;
  readonly connections: number;
  readonly connectionsMax: number;
  /** Age of the oldest open transaction, in any database of the server. */
  readonly oldestTransactionMs: number;
  readonly isStandby: boolean;
  /** Its transactions are read-only unless they say otherwise: by a setting, or because it is a standby. */
  readonly isReadOnly: boolean;
  /** How far this machine's clock is ahead of the database's; negative if it is behind. */
  readonly clockAheadMs: number;
  /**
   * Whether the data folder was migrated to another database, or a migration into this one is not finished, as a start
   * would report it; null if neither.
   */
  readonly problemOfMigration: string | null;
  /** Whether the log in the data folder belongs to another installation, as a start would report it; null if not. */
  readonly problemOfLog: string | null;
}

export type Check = (parts: DoctorParts) => Promise<Finding[]>;

const SHOWN_MAX = 5;
const EXPIRES_SOON_MS = 7 * DAY_MS;
/** Less than this many times the limit is a warning. */
const FREE_BYTES_COMFORT = 4;
const PRIVATE_MODE = 0o700;
const OTHERS_MODE = 0o077;
/** With fewer left, a starting node may get none. */
const CONNECTIONS_SPARE_MIN = 10;
const TRANSACTION_LONG_MS = 5 * MINUTE_MS;
/** NTP keeps clocks within milliseconds; a query takes less than this. */
const CLOCKS_APART_MS = 60_000;
const CLOCKS_FAR_APART_MS = HOUR_MS;
/** A day, and time for a nightly backup to run late. */
const BACKUP_OLD_MS = 26 * HOUR_MS;
const BACKUP_ADVICE = 'Create one, on another disk: sluice backup --to FILE.tar.zst --verify (docs/backup.md).';
/** Variables of clients, and those that Kubernetes adds. */
const KNOWN_VARIABLES = /^SLUICE_(KEY|URL|SERVICE_.*|PORT|PORT_.*)$/;

export function ok(message: string): Finding {
  return { state: 'ok', message, advice: null };
}

export function warning(message: string, advice: string): Finding {
  return { state: 'warning', message, advice };
}

export function failed(message: string, advice: string): Finding {
  return { state: 'error', message, advice };
}

/** For what a start would report, too; none if it would report nothing. */
export function refusesStart(problem: string | null): Finding[] {
  return problem === null ? [] : [failed(problem, 'Until then a server refuses to start.')];
}

/** The first of several findings of one kind, and how many more there are. `isAtLeast`: not all were read. */
export function firstOf(findings: readonly Finding[], isAtLeast = false): Finding[] {
  const [first, ...others] = findings.slice(SHOWN_MAX);
  if (first === undefined) return [...findings];
  const state = [first, ...others].some((finding) => finding.state === 'error') ? 'error' : first.state;
  const message = `and ${isAtLeast ? 'at least ' : ''}${formatCount(others.length + 1)} more like these`;
  return [...findings.slice(0, SHOWN_MAX), { state, message, advice: null }];
}

export const checkSettings: Check = async ({ settingMistakes, env }) => {
  const findings = settingMistakes.map((mistake) =>
    failed(mistake, 'Fix it: "sluice serve" refuses to start like this. All settings: sluice help serve'),
  );
  const known = new Set(SETTING_NAMES.map((name): string => SETTINGS[name].env));
  const mistakes = settingMistakes.join('\n');
  const unknown = Object.keys(env).filter(
    (name) =>
      name.startsWith('SLUICE_') && !known.has(name) && !KNOWN_VARIABLES.test(name) && !mistakes.includes(` ${name};`),
  );
  if (unknown.length > 0) {
    const names = unknown.join(', ');
    findings.push(warning(`unknown in the environment: ${names}`, 'They do nothing; remove or rename them.'));
  }
  return findings.length > 0 ? findings : [ok('valid')];
};

export const checkFolder: Check = async ({ config, dataFolder, lockHolderOf }) => {
  const folder = resolve(dataFolder);
  const stat = statSync(folder, { throwIfNoEntry: false });
  if (stat === undefined && config.storeUrl !== '') {
    const advice = 'Run it where the server runs, or name the folder with --data FOLDER or SLUICE_DATA.';
    return [warning(`${folder} does not exist: no server has run on this machine`, advice)];
  }
  if (stat === undefined || !stat.isDirectory()) {
    const what = stat === undefined ? 'does not exist' : 'is not a folder';
    return [failed(`${folder} ${what}`, 'Name it with --data FOLDER or SLUICE_DATA.')];
  }
  const denied = accessProblemsOf(folder).map((problem) =>
    failed(`${problem.path} ${problem.what}`, accessAdvice(folder, problem)),
  );
  if (denied.length > 0) return firstOf(denied);
  const owners = ownerProblemsOf(folder).map(({ path, what }) => {
    const owner = `${stat.uid}:${stat.gid}`;
    const advice = `A server that runs as the owner of the folder refuses to start if it may not use the file: chown -R ${owner} "${folder}". One that runs as root needs nothing.`;
    return warning(`${path} ${what}`, advice);
  });
  const findings = firstOf(owners);
  const names = readdirSync(folder);
  if (!['keys.db', 'store.db', 'log', 'lock.db', 'migrated.json'].some((name) => names.includes(name))) {
    const what = names.length === 0 ? 'is empty' : 'contains other files, but none of Sluice';
    findings.push(warning(`${folder} ${what}`, 'Is it the right one? The first "sluice serve" fills it.'));
  }
  if (process.platform !== 'win32' && (stat.mode & OTHERS_MODE) !== 0) {
    const mode = (stat.mode & 0o777).toString(8);
    const advice = `It contains personal data. Make it private: chmod ${PRIVATE_MODE.toString(8)} ${folder}`;
    findings.push(warning(`other users can read ${folder} (mode ${mode})`, advice));
  }
  if (findings.length === 0) findings.push(ok(`${folder} exists and is private`));
  return [...findings, { ...serverFinding(lockHolderOf(dataFolder)), check: 'server' }];
};

function serverFinding({ isHeld, pid }: LockHolder): Finding {
  const name = pid === null ? '' : ` (process ${pid})`;
  if (!isHeld) return ok(`none is running on this folder${pid === null ? '' : `; the last one${name} has ended`}`);
  if (pid !== null && !isAlive(pid)) {
    const advice = 'That is right for a container. If the folder is on a network disk, move it to a local one.';
    return warning(`one is running on this folder, but its process ${pid} is not visible from here`, advice);
  }
  return ok(`one is running on this folder${name}`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // A process of another user is alive, too.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

export const checkDisk: Check = async ({ config, dataFolder, freeBytesOf }) => {
  if (!existsSync(dataFolder)) return [];
  const free = freeBytesOf(dataFolder);
  const least = config.diskFreeBytesMin;
  const limit = `${SETTINGS.diskFreeBytesMin.env} is ${formatSetting('diskFreeBytesMin', least)}`;
  if (free < least) {
    const advice = 'Clients get 503. Free space on that disk; the server recovers by itself within seconds.';
    return [failed(`${formatBytes(free)} are free, and ${limit}`, advice)];
  }
  if (free < least * FREE_BYTES_COMFORT) {
    const advice = 'Below the limit clients get 503: make room, or shorten SLUICE_LOG_RETENTION.';
    return [warning(`only ${formatBytes(free)} are free, and ${limit}`, advice)];
  }
  return [ok(`${formatBytes(free)} are free`)];
};

/**
 * Checks a shared database: whether it responds, can be written, is up to date and has spare connections, and whether a
 * transaction has been open so long that it holds back vacuum.
 */
export const checkDatabase: Check = async ({ config, lookAtDatabase }) => {
  const facts = await lookAtDatabase(config);
  const name = withoutSecrets(config.storeUrl);
  if (facts.isStandby) {
    const advice = 'Point STORE_URL at the primary server: Sluice writes.';
    return [failed(`${name} responds, but is a standby`, advice)];
  }
  if (facts.isReadOnly) {
    const advice =
      'Sluice writes. Turn default_transaction_read_only off, for the server, the database or the role that has it on. A managed service may have turned it on because its disk is full: then make room first.';
    return [failed(`${name} responds, but is read-only`, advice)];
  }
  const findings: Finding[] = [ok(`${name} responds: PostgreSQL ${facts.version}`)];
  const [ofMigration] = refusesStart(facts.problemOfMigration);
  if (ofMigration !== undefined) return [...findings, ofMigration];
  const [ofLog] = refusesStart(facts.problemOfLog);
  if (ofLog !== undefined) return [...findings, { ...ofLog, check: 'log' }];
  if (!facts.hasTables) {
    findings.push(warning('it has no Sluice tables yet', 'The first "sluice serve" creates them.'));
    return findings;
  }
  findings.push(...refusesStart(facts.problemOfIndexes));
  const size = `${formatBytes(facts.bytes)} in total, events and records in ${countOf(facts.days, 'table')} of one day each`;
  findings.push(ok(`its tables exist: ${size}`));
  const spare = facts.connectionsMax - facts.connections;
  if (spare < CONNECTIONS_SPARE_MIN) {
    const advice = 'Raise max_connections, lower SLUICE_STORE_CONNECTIONS, or run fewer servers.';
    const used = `${facts.connections} of ${countOf(facts.connectionsMax, 'connection')} are in use`;
    findings.push(warning(used, advice));
  }
  if (facts.oldestTransactionMs > TRANSACTION_LONG_MS) {
    const advice = 'Find it in pg_stat_activity and end it: it holds back vacuum, and the tables grow.';
    const age = formatSpan(facts.oldestTransactionMs);
    findings.push(warning(`a transaction in that server has been open for ${age}`, advice));
  }
  return findings;
};

/** Servers that share a database compare times that their machines' clocks gave. None if these agree. */
export const checkDatabaseClock: Check = async ({ config, lookAtDatabase, now }) => {
  if (config.storeUrl === '') return [];
  const { clockAheadMs } = await lookAtDatabase(config);
  const apartMs = Math.abs(clockAheadMs);
  if (apartMs <= CLOCKS_APART_MS) return [];
  const direction = clockAheadMs > 0 ? 'ahead of' : 'behind';
  const message = `it says ${localTime(now())}, ${formatSpan(apartMs)} ${direction} the clock of the database`;
  const advice =
    'Synchronise this machine, the database and all other servers with NTP. Until their clocks agree, a retry that reaches another server may be stored twice, an older write may win over a newer one, and an erasure may keep or drop the wrong data.';
  return [(apartMs > CLOCKS_FAR_APART_MS ? failed : warning)(message, advice)];
};

export const checkKeys: Check = async (parts) => {
  const { config, dataFolder, now } = parts;
  if (config.storeUrl === '' && hasLostKeys(dataFolder)) return [failed(lostKeysText(dataFolder), LOST_KEYS_ADVICE)];
  const advice = 'Create one: sluice keys create --name NAME --kind secret --env production';
  const found = await onFoundKeys(parts, config, async (store) => {
    const keys = (await store.list()).filter(({ revokedAt }) => revokedAt === null);
    const findings: Finding[] = await unknownAccounts(parts, store);
    for (const key of keys) {
      const name = `"${key.name}" (${displayOf(key)}, ${key.environment})`;
      const left = key.expiresAt === null ? Number.POSITIVE_INFINITY : key.expiresAt - now();
      if (key.leakSuspectedAt !== null) {
        findings.push(
          warning(
            `the secret key ${name} was used from the web page ${key.leakOrigin} at ${localTime(key.leakSuspectedAt)}`,
            `Probably leaked. Replace it: sluice keys roll ${key.id} --overlap 1h`,
          ),
        );
      }
      if (left <= 0) {
        const then = `Clients that still use it get 401. When none does: sluice keys revoke ${key.id}`;
        findings.push(warning(`${name} expired ${formatSpan(-left)} ago`, then));
      } else if (left < EXPIRES_SOON_MS) {
        findings.push(warning(`${name} expires in ${formatSpan(left)}`, `Replace it: sluice keys roll ${key.id}`));
      }
    }
    if (keys.length === 0) findings.push(warning('no key is active', advice));
    return findings.length > 0 ? findings : [ok(`${countOf(keys.length, 'key')}, none expired or leaked`)];
  });
  return found ?? [warning('there are none yet', advice)];
};

/** Accounts are never removed, so data of an unknown one means that the keys are older than the data. */
async function unknownAccounts({ store: openStore }: DoctorParts, keys: KeyStore): Promise<Finding[]> {
  const tenants = (await (await openStore())?.tenants()) ?? [];
  const known = new Set((await keys.accounts()).map(({ id }) => id));
  const unknown = new Set(tenants.map((id) => id.slice(0, id.lastIndexOf('/'))).filter((id) => !known.has(id)));
  if (unknown.size === 0) return [];
  const more = unknown.size > SHOWN_MAX ? `, and ${formatCount(unknown.size - SHOWN_MAX)} more` : '';
  const ids = [...unknown].slice(0, SHOWN_MAX).join(', ') + more;
  return [
    warning(
      `the store has data of ${countOf(unknown.size, 'account')} that keys.db does not know (${ids}): an older keys.db was put back, and no key can read that data`,
      'Put the newer keys.db back. If it is gone, stop the server and create a key for each of these accounts by its id: sluice keys create ' +
        '--account ID --name NAME --kind secret --env production --replace-lost-keys',
    ),
  ];
}

/** Nothing where there are none. */
export const checkPlans: Check = async (parts) => {
  const found = await onFoundKeys(parts, parts.config, async (store) => {
    const findings: Finding[] = [];
    let count = 0;
    for (const { id: accountId, name } of await store.accounts()) {
      for (const environment of ENVIRONMENTS) {
        const plan = await store.plans.find({ accountId, environment });
        if (plan === undefined) continue;
        count += 1;
        const reading = parsePlan(plan.text);
        if (reading.ok) continue;
        const what = `version ${plan.version} of the tracking plan of "${name}" (${environment}) cannot be read by this version of Sluice: ${describeMistakes(reading.mistakes)}`;
        findings.push(failed(what, UNUSABLE_ADVICE));
      }
    }
    if (count === 0 || findings.length > 0) return firstOf(findings);
    return [ok(`${countOf(count, 'tracking plan')}, readable`)];
  });
  return found ?? [];
};

const UNUSABLE_ADVICE =
  'Events are not checked against it, and Live and exports of that tenant fail, since what is personal is unknown. Push it again: sluice plan push. If a newer Sluice stored it, run that version.';

/**
 * When the last successful one of this data folder began, as `sluice backup` noted it there. Copies made by other means
 * leave no note, so a missing or old one is a warning, never more.
 */
export const checkBackup: Check = async (parts) => {
  // With Kafka, nothing is in the folder; backups of PostgreSQL are not visible from here.
  if (parts.config.logUrl !== '') return [];
  return [...unfinishedFindings(parts), ...(await lastFindings(parts))];
};

function unfinishedFindings({ dataFolder, isBackupRunning, now }: DoctorParts): Finding[] {
  // Checked first: a backup that ends between the two checks has removed its note by then.
  const isRunning = isBackupRunning(logFolderOf(dataFolder));
  const unfinished = readUnfinishedBackup(dataFolder);
  if (unfinished === undefined) return [];
  const began = `${formatSpan(Math.max(0, now() - Date.parse(unfinished.began_at)))} ago`;
  if (isRunning) return [ok(`one started ${began} and is running: ${unfinished.target}`)];
  const left = leftoversOf(unfinished.target);
  const what = left.length === 0 ? 'It left nothing' : `It left ${left.join(' and ')}, which no restore takes`;
  return [
    warning(
      `the one to ${unfinished.target} that began ${began} was killed`,
      `${what}. The next "sluice backup" of this data folder removes that.`,
    ),
  ];
}

async function lastFindings({ config, dataFolder, store, now }: DoctorParts): Promise<Finding[]> {
  const last = readLastBackup(dataFolder);
  if (last !== undefined) {
    const age = now() - Date.parse(last.began_at);
    const what = config.storeUrl === '' ? 'the last one' : 'the last one of the log';
    const words = `${what} began ${formatSpan(age)} ago: ${last.target} (${formatBytes(last.bytes)}, ${last.verified ? 'checked' : 'not checked'})`;
    return [age > BACKUP_OLD_MS ? warning(words, BACKUP_ADVICE) : ok(words)];
  }
  if (config.storeUrl !== '') return [];
  const hours = (await (await store())?.ledger(null, { from: null, to: null }))?.hours ?? [];
  const oldest = hours.reduce((earliest, { hour }) => Math.min(earliest, hour), now());
  if (now() - oldest <= BACKUP_OLD_MS) return [ok('none yet, and the data is less than a day old')];
  return [warning(`there was never one, and the oldest data is ${formatSpan(now() - oldest)} old`, BACKUP_ADVICE)];
}
