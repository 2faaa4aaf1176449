/**
 * The doctor's look at a database that servers share: whether it answers, is up to date, has connections to spare, and
 * whether somebody holds a transaction open for so long that the live view and the cleaning up wait for it.
 */

import { withoutSecrets } from '../config/values.ts';
import { broken, type Check, type Finding, warning, well } from './doctor-checks.ts';
import { countOf, formatBytes, formatSpan } from './local-time.ts';

/** With fewer than this left, a node that starts may get none. */
const CONNECTIONS_SPARE_MIN = 10;
const TRANSACTION_LONG_MS = 5 * 60_000;

export const checkDatabase: Check = async ({ config, lookAtDatabase }) => {
  const facts = await lookAtDatabase();
  const name = withoutSecrets(config.storeUrl);
  if (facts.isStandby) {
    const advice = 'Point STORE_URL at the primary server: Sluice writes.';
    return [broken('database', `${name} answers, but is a standby`, advice)];
  }
  const findings: Finding[] = [well('database', `${name} answers: PostgreSQL ${facts.version}`)];
  if (facts.problemOfMigration !== null) {
    return [...findings, broken('database', facts.problemOfMigration, 'Until then a server refuses to start.')];
  }
  if (facts.problemOfLog !== null) {
    return [...findings, broken('log', facts.problemOfLog, 'Until then a server refuses to start.')];
  }
  if (facts.migrations === null) {
    findings.push(warning('database', 'it has no tables of Sluice yet', 'A first "sluice serve" makes them.'));
    return findings;
  }
  if (facts.migrationsMissing > 0) {
    const advice = 'The next start of a server of this version takes them; old and new servers may run side by side.';
    findings.push(
      warning('database', `${countOf(facts.migrationsMissing, 'step')} to this version's tables are missing`, advice),
    );
  }
  const size = `${formatBytes(facts.bytes)} in all, events and records in ${countOf(facts.days, 'table')} of a day each`;
  findings.push(well('database', `its tables are there: ${size}`));
  const spare = facts.connectionsMax - facts.connections;
  if (spare < CONNECTIONS_SPARE_MIN) {
    const advice = 'Raise max_connections, lower SLUICE_STORE_CONNECTIONS, or run fewer servers.';
    const used = `${facts.connections} of ${countOf(facts.connectionsMax, 'connection')} are in use`;
    findings.push(warning('database', used, advice));
  }
  if (facts.oldestTransactionMs > TRANSACTION_LONG_MS) {
    const advice = 'See pg_stat_activity, and end it there. Until then the live view and "sluice tail" stand still.';
    const age = formatSpan(facts.oldestTransactionMs);
    findings.push(warning('database', `a transaction in that server has been open for ${age}`, advice));
  }
  return findings;
};
