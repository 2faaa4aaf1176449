/**
 * Reads the settings of Sluice; `settings.ts` is their table. The only reader of the process
 * environment. A flag wins over the environment, the environment over the default; a variable that is set
 * to nothing counts as not set. All mistakes are reported at once, misspelt names included: a setting that silently does
 * nothing is worse than a refusal to start.
 */

import { getCompileCacheDir } from 'node:module';
import { dirname } from 'node:path';
import { mistakesError, readFlags, suggestion } from './flags.ts';
import { type Kind, withoutSecrets } from './values.ts';
import { EDGE_BYTES_MIN, type Setting, SETTINGS } from './settings.ts';

export { SETTINGS } from './settings.ts';

export type Env = Readonly<Record<string, string | undefined>>;
type Source = 'default' | 'environment' | 'flag';

const PREFIX = 'SLUICE_';

type Settings = typeof SETTINGS;
export type SettingName = keyof Settings;
export type Config = { readonly [Name in SettingName]: Settings[Name]['default'] };
export type Sources = Readonly<Record<SettingName, Source>>;

export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];

export function loadConfig(input: { env: Env; args: readonly string[] }): { config: Config; sources: Sources } {
  const { config, sources, mistakes } = readConfig(input);
  if (mistakes.length > 0)
    throw mistakesError(mistakes, 'All settings, with their defaults: sluice help serve', 'Invalid settings:');
  return { config, sources };
}

/** Like `loadConfig`, for callers that report more mistakes; where there are any, the defaults are used. */
export function readConfig(input: { env: Env; args: readonly string[] }): {
  config: Config;
  sources: Sources;
  mistakes: string[];
} {
  const { env, args } = input;
  const flags = readFlags(args, Object.fromEntries(SETTING_NAMES.map((name) => [SETTINGS[name].flag, 'value'])));
  const mistakes = [
    ...flags.mistakes,
    ...flags.positionals.map((word) => `unexpected argument "${withoutSecrets(word)}"`),
  ];
  const config: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};

  for (const name of SETTING_NAMES) {
    const row: Setting<unknown> = SETTINGS[name];
    const fromFlag = flags.values.get(row.flag);
    const fromEnv = env[row.env] === '' ? undefined : env[row.env];
    const given = fromFlag ?? fromEnv;
    const value = given === undefined ? row.default : row.kind.parse(given.trim());
    if (value === undefined) {
      const asWritten = fromFlag === undefined ? row.env : `--${row.flag}`;
      const is = row.kind.isSecret === true ? 'cannot be used' : `is "${given}"`;
      mistakes.push(`${asWritten} ${is}; expected ${row.kind.expected}`);
    }
    config[name] = value ?? row.default;
    sources[name] = fromFlag !== undefined ? 'flag' : fromEnv !== undefined ? 'environment' : 'default';
  }
  if (sources['inFlightBytesMax'] === 'default') {
    config['inFlightBytesMax'] = Math.max(SETTINGS.inFlightBytesMax.default, Number(config['edges']) * EDGE_BYTES_MIN);
  }
  mistakes.push(...misspeltVariables(env));
  if (mistakes.length === 0) mistakes.push(...tooLittleRoom(config as Config), ...impossible(config as Config));
  return { config: config as Config, sources: sources as Sources, mistakes };
}

export function describeConfig(config: Config, sources: Sources) {
  return SETTING_NAMES.map((name) => {
    const { flag, env, description } = SETTINGS[name];
    return {
      setting: name,
      flag: `--${flag}`,
      env,
      value: formatSetting(name, config[name]),
      source: sources[name],
      description,
    };
  });
}

/** The value of a setting as a person would write it: `64MB`, not 67108864. */
export function formatSetting<Name extends SettingName>(name: Name, value: Config[Name]): string {
  const kind: Kind<unknown> = SETTINGS[name].kind;
  return kind.format(value);
}

/** The environment of this process, for the composition root to pass on, and for colour. */
export function processEnvironment(): Env {
  return process.env;
}

/**
 * Lets the threads that are started from now on load compiled code from where this process has it. Without, each of them
 * loads the compiler that takes the types out of a checkout's sources, which is 6 MB a thread.
 */
export function shareCompileCache(): void {
  const folder = getCompileCacheDir();
  // The folder is that of this version of Node, within the one that the variable names.
  if (folder !== undefined) process.env['NODE_COMPILE_CACHE'] ??= dirname(folder);
}

/** A body that fits the limit must fit the memory, or its client would retry forever. */
function tooLittleRoom({ inFlightBytesMax, edges }: Config): string[] {
  const needed = edges * EDGE_BYTES_MIN;
  if (inFlightBytesMax >= needed) return [];
  const [given, least] = [inFlightBytesMax, needed].map((value) => formatSetting('inFlightBytesMax', value));
  const whose = edges === 1 ? 'an edge needs' : `${edges} edges need`;
  return [`${SETTINGS.inFlightBytesMax.env} is ${given}, but ${whose} at least ${least}; set it, or use fewer edges`];
}

/** Roles share what they work on, so that has to be where all of them reach it. */
function impossible({ storeUrl, logUrl, role }: Config): string[] {
  if (role !== 'all' && (storeUrl === '' || logUrl === '')) {
    const missing = [storeUrl === '' ? 'STORE_URL' : '', logUrl === '' ? 'LOG_URL' : ''].filter((name) => name !== '');
    const [are, them] = missing.length > 1 ? ['are', 'them'] : ['is', 'it'];
    return [
      `SLUICE_ROLE is ${role}, but ${missing.join(' and ')} ${are} not set: servers of different roles meet in PostgreSQL and Kafka; set ${them}, or leave the role at all`,
    ];
  }
  if (logUrl !== '' && storeUrl === '') {
    return [
      'LOG_URL is set, but STORE_URL is not: who shares a log has to share a store; set STORE_URL=postgres://… too, or leave LOG_URL out',
    ];
  }
  return [];
}

/**
 * Only what looks like a misspelt setting: clients keep keys in variables such as SLUICE_KEY, and Kubernetes adds
 * SLUICE_SERVICE_HOST and the like on its own.
 */
function misspeltVariables(env: Env): string[] {
  const known = SETTING_NAMES.map((name): string => SETTINGS[name].env).filter((name) => name.startsWith(PREFIX));
  const endings = known.map((name) => name.slice(PREFIX.length));
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name))
    .flatMap((name) => {
      const ending = name.slice(PREFIX.length);
      // PORT and HOST are called so everywhere, and so here. Kubernetes sets SLUICE_PORT to the address of a service.
      const isAddress = /^(tcp|udp):/.test(env[name] ?? '');
      if (!isAddress && SETTING_NAMES.some((setting) => SETTINGS[setting].env === ending)) {
        return [`unknown environment variable ${name}: it is called ${ending} alone`];
      }
      return suggestion(ending, endings) === ''
        ? []
        : [`unknown environment variable ${name}${suggestion(name, known)}`];
    });
}
