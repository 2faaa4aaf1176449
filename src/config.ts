/**
 * The settings of Sluice: one table gives names, checks, defaults, units and the words of --help. The only reader of
 * the process environment. A flag wins over the environment, the environment over the default; a variable that is set
 * to nothing counts as not set. All mistakes are told at once, misspelt names included: a setting that silently does
 * nothing is worse than a refusal to start.
 */

import { mistakesError, readFlags, suggestion } from './cli/flags.ts';
import {
  bytes,
  choice,
  country,
  DAY_MS,
  duration,
  FOREVER_MS,
  GB,
  host,
  integer,
  type Kind,
  list,
  MB,
  origin,
  retention,
  SECOND_MS,
  text,
} from './config-values.ts';
import { ENVIRONMENTS } from './model.ts';

export type Env = Readonly<Record<string, string | undefined>>;
export type Source = 'default' | 'environment' | 'flag';

export interface Setting<T> {
  readonly env: string;
  /** Without the dashes. */
  readonly flag: string;
  /** Stands for the value in --help. */
  readonly placeholder: string;
  readonly kind: Kind<T>;
  readonly default: T;
  readonly description: string;
}

const PREFIX = 'SLUICE_';
/** Room for one body of 10 MB, before and after decompression, within the share of large bodies (edge/admission.ts). */
const EDGE_BYTES_MIN = 28 * MB;

/** In the order of --help. */
export const SETTINGS = {
  port: setting({
    env: 'PORT',
    flag: 'port',
    placeholder: 'N',
    kind: integer(0, 65_535),
    default: 8_080,
    description: 'The port to listen on; 0 takes any free one and tells you which.',
  }),
  host: setting({
    env: 'HOST',
    flag: 'host',
    placeholder: 'ADDRESS',
    kind: host(),
    default: '127.0.0.1',
    description: 'The address to listen on; 0.0.0.0 lets other machines in.',
  }),
  publicUrl: setting({
    env: 'SLUICE_PUBLIC_URL',
    flag: 'public-url',
    placeholder: 'URL',
    kind: origin(),
    default: '',
    description: 'Where people reach this server, for links and secure cookies; set it behind a proxy.',
  }),
  dataFolder: setting({
    env: 'SLUICE_DATA',
    flag: 'data',
    placeholder: 'FOLDER',
    kind: text('the path of a folder'),
    default: './data',
    description: 'Where events and keys live; one server per folder.',
  }),
  environment: setting({
    env: 'SLUICE_ENVIRONMENT',
    flag: 'environment',
    placeholder: 'WHICH',
    kind: choice(['any', ...ENVIRONMENTS]),
    default: 'any',
    description: 'Whose keys are let in; keys of another environment get 401.',
  }),
  edges: setting({
    env: 'SLUICE_EDGES',
    flag: 'edges',
    placeholder: 'N',
    kind: integer(1, 64),
    default: 1,
    description:
      'Edge threads listening on the one port, each with its own log partition; more than 1 needs Linux or FreeBSD (SO_REUSEPORT).',
  }),
  inFlightBytesMax: setting({
    env: 'SLUICE_IN_FLIGHT_BYTES',
    flag: 'in-flight-bytes',
    placeholder: 'SIZE',
    kind: bytes(EDGE_BYTES_MIN),
    default: 64 * MB,
    description: 'Request bodies held in memory at once, over all edges; beyond it the answer is 503, not a crash.',
  }),
  diskFreeBytesMin: setting({
    env: 'SLUICE_DISK_FREE_MIN',
    flag: 'disk-free-min',
    placeholder: 'SIZE',
    kind: bytes(0),
    default: 256 * MB,
    description:
      'With less free disk than this the answer is 503, before the disk is really full; 0 switches this off.',
  }),
  logSegmentBytes: setting({
    env: 'SLUICE_LOG_SEGMENT',
    flag: 'log-segment',
    placeholder: 'SIZE',
    kind: bytes(MB),
    default: 64 * MB,
    description: 'The event log starts a new file when the current one has grown to this size.',
  }),
  logRetentionMs: setting({
    env: 'SLUICE_LOG_RETENTION',
    flag: 'log-retention',
    placeholder: 'TIME',
    kind: retention(),
    default: 7 * DAY_MS,
    description: 'How long processed requests stay in the log, as they came; unprocessed ones always stay.',
  }),
  backlogBytesMax: setting({
    env: 'SLUICE_BACKLOG_MAX',
    flag: 'backlog-max',
    placeholder: 'SIZE',
    kind: bytes(MB),
    default: 4 * GB,
    description: 'With more than this in the log that is not yet processed the answer is 503.',
  }),
  eventRetentionMs: setting({
    env: 'SLUICE_EVENT_RETENTION',
    flag: 'event-retention',
    placeholder: 'TIME',
    kind: retention(),
    default: FOREVER_MS,
    description: 'How long events are kept after they came in; profiles stay.',
  }),
  traceRetentionMs: setting({
    env: 'SLUICE_TRACE_RETENTION',
    flag: 'trace-retention',
    placeholder: 'TIME',
    kind: retention(),
    default: 30 * DAY_MS,
    description: 'How long the details of a trace are kept: warnings, merges, duplicates, rejected users.',
  }),
  rejectionRetentionMs: setting({
    env: 'SLUICE_REJECTION_RETENTION',
    flag: 'rejection-retention',
    placeholder: 'TIME',
    kind: retention(),
    default: 7 * DAY_MS,
    description: 'How long rejected users are kept, with what was sent.',
  }),
  rejectionBytesMax: setting({
    env: 'SLUICE_REJECTION_BYTES',
    flag: 'rejection-bytes',
    placeholder: 'SIZE',
    kind: bytes(0),
    default: 256 * MB,
    description: 'How much of rejected users is kept at most; the oldest go first.',
  }),
  defaultCountry: setting({
    env: 'SLUICE_DEFAULT_COUNTRY',
    flag: 'default-country',
    placeholder: 'CODE',
    kind: country(),
    default: '',
    description: 'The country of phone numbers without + or 00, such as DE; set it before the first event.',
  }),
  junkValues: setting({
    env: 'SLUICE_JUNK_VALUES',
    flag: 'junk-values',
    placeholder: 'LIST',
    kind: list(),
    default: '',
    description:
      'More identifier values that name nobody, separated by commas; null, undefined, guest and such are known.',
  }),
  logLevel: setting({
    env: 'SLUICE_LOG_LEVEL',
    flag: 'log-level',
    placeholder: 'LEVEL',
    kind: choice(['fatal', 'error', 'warn', 'info', 'debug', 'silent']),
    default: 'info',
    description: 'How talkative the JSON log on stderr is: fatal, error, warn, info, debug or silent.',
  }),
  shutdownMs: setting({
    env: 'SLUICE_SHUTDOWN',
    flag: 'shutdown',
    placeholder: 'TIME',
    kind: duration(0, 30 * SECOND_MS),
    default: 25 * SECOND_MS,
    description: 'How long requests under way may take to finish after SIGTERM; at most 30s.',
  }),
};

type Settings = typeof SETTINGS;
export type SettingName = keyof Settings;
export type Config = { readonly [Name in SettingName]: Settings[Name]['default'] };
export type Sources = Readonly<Record<SettingName, Source>>;

export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];

export function loadConfig(input: { env: Env; args: readonly string[] }): { config: Config; sources: Sources } {
  const { config, sources, mistakes } = readConfig(input);
  if (mistakes.length > 0) throw mistakesError(mistakes, 'All settings, with their defaults: sluice --help');
  return { config, sources };
}

/** Like `loadConfig`, for callers that have more mistakes to tell; where there are any, the defaults stand in. */
export function readConfig(input: { env: Env; args: readonly string[] }): {
  config: Config;
  sources: Sources;
  mistakes: string[];
} {
  const { env, args } = input;
  const flags = readFlags(args, Object.fromEntries(SETTING_NAMES.map((name) => [SETTINGS[name].flag, 'value'])));
  const mistakes = [...flags.mistakes, ...flags.positionals.map((word) => `unexpected argument "${word}"`)];
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
      mistakes.push(`${asWritten} is "${given}"; expected ${row.kind.expected}`);
    }
    config[name] = value ?? row.default;
    sources[name] = fromFlag !== undefined ? 'flag' : fromEnv !== undefined ? 'environment' : 'default';
  }
  mistakes.push(...misspeltVariables(env));
  if (mistakes.length === 0) mistakes.push(...tooLittleRoom(config as Config));
  return { config: config as Config, sources: sources as Sources, mistakes };
}

export interface ConfigRow {
  readonly setting: SettingName;
  readonly flag: string;
  readonly env: string;
  /** As a person would write it. */
  readonly value: string;
  readonly source: Source;
  readonly description: string;
}

export function describeConfig(config: Config, sources: Sources): ConfigRow[] {
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

/** The environment of this process, for the composition root to pass on. */
export function processEnvironment(): Env {
  return process.env;
}

/** A body that fits the limit must fit the memory, or its client would be told to come back for ever. */
function tooLittleRoom({ inFlightBytesMax, edges }: Config): string[] {
  const needed = edges * EDGE_BYTES_MIN;
  if (inFlightBytesMax >= needed) return [];
  const [given, least] = [inFlightBytesMax, needed].map((value) => formatSetting('inFlightBytesMax', value));
  const whose = edges === 1 ? 'an edge needs' : `${edges} edges need`;
  return [`${SETTINGS.inFlightBytesMax.env} is ${given}, but ${whose} at least ${least}; set it, or use fewer edges`];
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

/** The kind alone decides the type, so that a choice stays one of its choices and is not any text. */
function setting<T>(row: Omit<Setting<T>, 'default'> & { readonly default: NoInfer<T> }): Setting<T> {
  return row;
}
