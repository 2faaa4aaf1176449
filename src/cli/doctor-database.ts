/**
 * The doctor's check of a shared database: whether it responds, is up to date and has spare connections, whether a
 * transaction has been open so long that it holds back vacuum, and whether its clock agrees with this machine's.
 */

import { withoutSecrets } from '../config/values.ts';
import { HOUR_MS, MINUTE_MS } from '../model.ts';
import { failed, type Check, type Finding, warning, ok } from './doctor-checks.ts';
import { countOf, formatBytes, formatSpan, localTime } from './local-time.ts';

/** With fewer left, a starting node may get none. */
const CONNECTIONS_SPARE_MIN = 10;
const TRANSACTION_LONG_MS = 5 * MINUTE_MS;
/** NTP keeps clocks within milliseconds; a query takes less than this. */
const CLOCKS_APART_MS = 60_000;
const CLOCKS_FAR_APART_MS = HOUR_MS;

export const checkDatabase: Check = async ({ config, lookAtDatabase }) => {
  const facts = await lookAtDatabase();
  const name = withoutSecrets(config.storeUrl);
  if (facts.isStandby) {
    const advice = 'Point STORE_URL at the primary server: Sluice writes.';
    return [failed('database', `${name} responds, but is a standby`, advice)];
  }
  const findings: Finding[] = [ok('database', `${name} responds: PostgreSQL ${facts.version}`)];
  if (facts.problemOfMigration !== null) {
    return [...findings, failed('database', facts.problemOfMigration, 'Until then a server refuses to start.')];
  }
  if (facts.problemOfLog !== null) {
    return [...findings, failed('log', facts.problemOfLog, 'Until then a server refuses to start.')];
  }
  if (facts.migrations === null) {
    findings.push(warning('database', 'it has no Sluice tables yet', 'The first "sluice serve" creates them.'));
    return findings;
  }
  if (facts.migrationsMissing > 0) {
    const advice = 'The next start of a server of this version applies them; old and new servers may run side by side.';
    findings.push(
      warning('database', `${countOf(facts.migrationsMissing, 'step')} to this version's tables are missing`, advice),
    );
  }
  const size = `${formatBytes(facts.bytes)} in total, events and records in ${countOf(facts.days, 'table')} of one day each`;
  findings.push(ok('database', `its tables exist: ${size}`));
  const spare = facts.connectionsMax - facts.connections;
  if (spare < CONNECTIONS_SPARE_MIN) {
    const advice = 'Raise max_connections, lower SLUICE_STORE_CONNECTIONS, or run fewer servers.';
    const used = `${facts.connections} of ${countOf(facts.connectionsMax, 'connection')} are in use`;
    findings.push(warning('database', used, advice));
  }
  if (facts.oldestTransactionMs > TRANSACTION_LONG_MS) {
    const advice = 'Find it in pg_stat_activity and end it: it holds back vacuum, and the tables grow.';
    const age = formatSpan(facts.oldestTransactionMs);
    findings.push(warning('database', `a transaction in that server has been open for ${age}`, advice));
  }
  return findings;
};

/** Servers that share a database compare times that their machines' clocks gave. None if these agree. */
export const checkDatabaseClock: Check = async ({ config, lookAtDatabase, now }) => {
  if (config.storeUrl === '') return [];
  const { clockAheadMs } = await lookAtDatabase();
  const apartMs = Math.abs(clockAheadMs);
  if (apartMs <= CLOCKS_APART_MS) return [];
  const direction = clockAheadMs > 0 ? 'ahead of' : 'behind';
  const message = `it says ${localTime(now())}, ${formatSpan(apartMs)} ${direction} the clock of the database`;
  const advice =
    'Synchronise this machine, the database and all other servers with NTP. Until their clocks agree, a retry that reaches another server may be stored twice, an older write may win over a newer one, and an erasure may keep or drop the wrong data.';
  return [(apartMs > CLOCKS_FAR_APART_MS ? failed : warning)('clock', message, advice)];
};
