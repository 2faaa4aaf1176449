/**
 * What the commands that read the store share: where the data is, and which tenant to read. `--account` and
 * `--env` choose the tenant; when only one has data it is taken without asking. A mistyped choice is reported with what
 * there is. Nothing is made: in a wrong folder these commands leave nothing behind.
 */

import type { Config } from '../config/config.ts';
import { hasSegments } from '../data-folder/files.ts';
import { OperatorError } from '../errors.ts';
import { ENVIRONMENTS, type Environment, type TenantId, tenantOf, tenantPartsOf } from '../model.ts';
import { type Plan, parsePlan } from '../plans/plan.ts';
import type { Account } from '../keys.ts';
import type { LedgerReader, Store } from '../store.ts';
import { isRetryable } from '../runtime/unavailable.ts';
import { readEnvironment } from './arguments.ts';
import { type FlagsRead, suggestion } from '../config/flags.ts';
import { countOf } from './local-time.ts';
import { locationName, readSettings } from './location.ts';
import { onFoundKeys, type Shell } from './shell.ts';

export interface Tenant {
  readonly id: TenantId;
  /** For people: `account "default", development`. */
  readonly title: string;
}

export interface DataSource {
  readonly config: Config;
  /** Which tenant a person named; what is undefined was left open. */
  readonly option: { readonly account: string | undefined; readonly environment: Environment | undefined };
}

export function readDataSource(flags: FlagsRead, shell: Shell): DataSource {
  const config = readSettings(flags, shell.env);
  return { config, option: { account: flags.values.get('account'), environment: readEnvironment(flags) } };
}

export async function withStore<T>(shell: Shell, config: Config, work: (store: Store) => Promise<T>): Promise<T> {
  let store: Store | undefined;
  try {
    store = await shell.openStore(config);
    if (store === undefined) throw new OperatorError(nothingThere(config));
    return await work(store);
  } catch (error) {
    throw isRetryable(error) ? new OperatorError(unreadableText(config, error)) : error;
  } finally {
    await store?.close();
  }
}

function nothingThere(config: Config): string {
  if (config.storeUrl === '' && hasSegments(config.dataFolder)) {
    return (
      `There is no store in ${locationName(config)}, only a log: "sluice serve" makes the store from it. ` +
      '"sluice doctor" says whether anything is missing.'
    );
  }
  const elsewhere = config.storeUrl !== '' ? '--store-url URL (or STORE_URL)' : '--data FOLDER (or SLUICE_DATA)';
  return (
    `There is no data in ${locationName(config)}: no server has run there yet. ` +
    `Look elsewhere with ${elsewhere}, or start a server: sluice serve`
  );
}

/** Errors that came from another thread may carry the stack of that thread, which does not help here. */
function unreadableText(config: Config, error: Error): string {
  const [reason = ''] = error.message.replace(/^\w*Error: /, '').split('\n');
  return `The data in ${locationName(config)} cannot be read: ${reason}\n"sluice doctor" says what to do.`;
}

/** Throws `OperatorError` when the tenant is ambiguous; undefined when nothing was sent yet. */
export async function findTenant(
  shell: Shell,
  store: LedgerReader,
  { config, option }: DataSource,
): Promise<Tenant | undefined> {
  const accounts = (await onFoundKeys(shell, config, (keys) => keys.accounts())) ?? [];
  if (option.account !== undefined && !accounts.some(({ name }) => name === option.account)) {
    throw new OperatorError(unknownAccount(option.account, accounts));
  }
  const named = new Map<TenantId, { readonly account: string; readonly environment: Environment }>();
  for (const { id, name } of accounts) {
    for (const environment of ENVIRONMENTS) named.set(tenantOf(id, environment), { account: name, environment });
  }
  const isChosen = (id: TenantId): boolean => {
    const name = named.get(id);
    if (option.account !== undefined && option.account !== name?.account) return false;
    return option.environment === undefined || option.environment === name?.environment;
  };
  const withData = await store.tenants();
  const chosen = withData.filter(isChosen);
  // Someone who named both means that one, data or none.
  const candidates = chosen.length > 0 || option.account === undefined ? chosen : [...named.keys()].filter(isChosen);
  const [only, ...others] = candidates;
  if (only === undefined) {
    if (withData.length > 0)
      throw new OperatorError(severalTenants('There is no data for that choice', withData, named));
    return undefined;
  }
  if (others.length > 0 && chosen.length === 0) return undefined;
  if (others.length > 0)
    throw new OperatorError(severalTenants('Several accounts or environments have data', chosen, named));
  const name = named.get(only);
  return { id: only, title: name === undefined ? `tenant ${only}` : `account "${name.account}", ${name.environment}` };
}

export async function chooseTenant(shell: Shell, store: LedgerReader, dataSource: DataSource): Promise<Tenant> {
  const tenant = await findTenant(shell, store, dataSource);
  if (tenant === undefined) {
    const { hours } = await store.ledger(null, { from: null, to: null });
    const waiting = hours.reduce((sum, { users }) => sum + users.pending, 0);
    if (waiting > 0) {
      throw new OperatorError(
        `Nothing in ${locationName(dataSource.config)} can be read yet: ${countOf(waiting, 'user')} ${waiting === 1 ? 'waits' : 'wait'} in the log to be processed. Try again in a moment; if no server runs, start one: sluice serve`,
      );
    }
    throw new OperatorError(
      `Nothing has been sent to ${locationName(dataSource.config)} yet. "sluice serve" prints a curl line that sends a first event.`,
    );
  }
  return tenant;
}

/** The tracking plan of the tenant, by which personal data is masked; null where there is none. */
export async function planOfTenant(shell: Shell, config: Config, tenant: Tenant): Promise<Plan | null> {
  const stored = await onFoundKeys(shell, config, ({ plans }) => plans.find(tenantPartsOf(tenant.id)));
  if (stored === undefined) return null;
  const reading = parsePlan(stored.text);
  if (!reading.ok) throw new OperatorError('The tracking plan is from a newer version of Sluice: run that version.');
  return reading.plan;
}

type Named = { readonly account: string; readonly environment: Environment } | undefined;

function severalTenants(title: string, tenants: readonly TenantId[], named: ReadonlyMap<TenantId, Named>): string {
  const choices = tenants.map((id) => {
    const name = named.get(id);
    return name === undefined
      ? `  (tenant ${id}, whose account no longer exists)`
      : `  --account "${name.account}" --env ${name.environment}`;
  });
  return [`${title}. Choose one:`, ...choices].join('\n');
}

function unknownAccount(given: string, accounts: readonly Account[]): string {
  const names = accounts.map(({ name }) => name);
  if (names.length === 0) return `There is no account "${given}": there are no accounts yet.`;
  const similar = suggestion(given, names);
  const title = `There is no account "${given}"${similar === '' ? '. Choose one:' : `${similar} Choose one:`}`;
  return [title, ...names.map((name) => `  --account "${name}"`)].join('\n');
}
