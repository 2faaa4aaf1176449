/**
 * The table of commands: names, flags and help texts. Help (help.ts), shell completion (completion.ts) and flag parsing
 * (arguments.ts) all derive from it, so they cannot disagree. To add a command, add an entry here and a runner in
 * main.ts; the compiler checks that it exists. Texts are wrapped when printed. A value named FILE or FOLDER is
 * completed with files or folders.
 */

import { formatSetting, type SettingName, SETTING_NAMES, SETTINGS } from '../config/config.ts';
import { type Environment, ENVIRONMENTS, KEY_KINDS } from '../model.ts';

export interface Flag {
  /** Stands for the value in the help. A switch has none. */
  readonly value?: string;
  readonly help: string;
  /** Where only these values are allowed. */
  readonly choices?: readonly string[];
}

type Flags = Readonly<Record<string, Flag>>;

export interface Command {
  /** What follows its name in the list of commands, where that is not its argument. */
  readonly synopsis?: string;
  /** What it does, in a few words: in the list of commands, and at the top of its help. */
  readonly summary: string;
  /** Command lines, each with an optional remark, where there is more to show than its name and its options. */
  readonly usage?: readonly (readonly [line: string, remark?: string])[];
  /** The argument that is not a flag: FILE completes files, `choices` those values. */
  readonly argument?: Flag & { readonly value: string };
  readonly flags: Flags;
  /** At the end of its help: what its page does not say. */
  readonly note?: string;
  readonly exitCodes?: string;
  /** The page in docs/ that has the details, where that is not its section in commands.md, or that of its parent. */
  readonly docs?: string;
  readonly commands?: Readonly<Record<string, Command>>;
}

export const EXPORT_FORMATS = ['ndjson', 'csv', 'parquet'] as const;
export const EXPORT_KINDS = ['events', 'profiles'] as const;
export const COMPLETION_SHELLS = ['bash', 'zsh', 'fish'] as const;

export const SHORT_ENVIRONMENTS: Readonly<Record<string, Environment>> = { prod: 'production', dev: 'development' };
const SHORT_FORMS = Object.keys(SHORT_ENVIRONMENTS);
/** All that `--env` takes. */
export const ENVIRONMENT_CHOICES: readonly string[] = [...ENVIRONMENTS, ...SHORT_FORMS];
export const ENVIRONMENTS_EXPECTED = `${ENVIRONMENTS.join(' or ')}, or ${SHORT_FORMS.join(' or ')} for short`;

const PERSONAL_FLAG: Flag = {
  help: 'show properties that the tracking plan marks as personal; otherwise they are •••',
};

const JSON_FLAG: Flags = { json: { help: 'print JSON, for programs' } };

const DATA_FLAG: Flags = {
  data: {
    value: 'FOLDER',
    help: `the data folder of the server (SLUICE_DATA, default ${SETTINGS.dataFolder.default})`,
  },
};

/** Where the data is: the same for all commands that need it. */
const LOCATION_FLAGS: Flags = {
  ...DATA_FLAG,
  'store-url': {
    value: 'URL',
    help: 'the PostgreSQL database, if servers share one (STORE_URL, which keeps the password out of the process list)',
  },
  'log-url': { value: 'URL', help: 'the Kafka topic, if servers share one (LOG_URL)' },
};

/** The server, and with which key: the same for all commands that call it over HTTP. */
const SERVER_FLAGS: Flags = {
  url: { value: 'URL', help: 'address of the server (SLUICE_URL); default the server running on the data folder' },
  key: { value: 'KEY', help: 'an API key (SLUICE_KEY, which keeps it out of the process list)' },
  ...DATA_FLAG,
};

const SENDING_FLAGS: Flags = {
  'retry-timeout': {
    value: 'TIME',
    help: 'how long to retry when the server is unreachable or responds with 503; default 10s, for an import 10m',
  },
  ...SERVER_FLAGS,
  ...JSON_FLAG,
};

const REJECTION_FLAGS: Flags = {
  reason: { value: 'REASON', help: 'only users rejected for this reason' },
  event: { value: 'NAME', help: 'only users with an event of this name' },
  'key-id': { value: 'ID', help: 'only users of requests with this API key' },
  from: { value: 'TIME', help: 'received at or after this time: 24h (ago), 2026-01-31, 2026-01-31T12:00Z (UTC)' },
  to: { value: 'TIME', help: 'received before this time' },
};

const ENVIRONMENT_FLAG: Flag = {
  value: 'ENVIRONMENT',
  help: ENVIRONMENTS_EXPECTED,
  choices: ENVIRONMENT_CHOICES,
};

const TENANT_FLAGS: Flags = {
  account: { value: 'NAME', help: 'the account; required if several accounts have data' },
  env: { ...ENVIRONMENT_FLAG, help: `${ENVIRONMENT_FLAG.help}; required if both have data` },
  ...LOCATION_FLAGS,
  json: { help: 'print JSON, for programs; times are UTC there, and local otherwise' },
};

const SETTING_FLAGS: Flags = Object.fromEntries(SETTING_NAMES.map((name) => [SETTINGS[name].flag, settingFlag(name)]));

function settingFlag(name: SettingName): Flag {
  const { description, env, kind } = SETTINGS[name];
  const choices = 'choices' in kind && kind.choices !== undefined ? { choices: kind.choices } : {};
  const values = choices.choices === undefined ? '' : ` One of ${choices.choices.join(', ')}.`;
  const preset = formatSetting(name, SETTINGS[name].default) || 'none';
  return { value: kind.placeholder, help: `${description}${values} (${env}, default ${preset})`, ...choices };
}

const RATE_FLAGS: Flags = {
  'users-per-second': {
    value: 'N',
    help: 'how many users the key may send per second, from 1 to 1000000; beyond it requests get 503 (429 under /ingest/v1/) with Retry-After',
  },
  burst: {
    value: 'N',
    help: 'how many users may arrive at once after a pause; default one second of --users-per-second',
  },
};

const KEY_ARGUMENT = { value: 'ID', help: 'the id of the key, from "sluice keys list"' } as const;
const KEY_NAME: Flag = { value: 'NAME', help: 'what the key is for, up to 100 characters' };

const KEYS_COMMANDS = {
  create: {
    summary: 'creates an API key and shows it once',
    usage: [['sluice keys create --name NAME --kind KIND --env ENVIRONMENT [options]']],
    flags: {
      name: KEY_NAME,
      kind: {
        value: 'KIND',
        help: 'secret (sk_prod_… or sk_dev_…): all of its environment except keys and members, for servers only; publishable (pk_…): can only send events, safe in browsers and apps',
        choices: KEY_KINDS,
      },
      env: { ...ENVIRONMENT_FLAG, help: `${ENVIRONMENT_FLAG.help}; their data is separate` },
      account: {
        value: 'NAME',
        help: 'the account of the key, created if it is new; required if there are several',
      },
      origins: {
        value: 'LIST',
        help: 'sites a publishable key can be used from, separated by commas, such as https://shop.example',
      },
      expires: {
        value: 'WHEN',
        help: 'in 30d or 12h, or on 2030-01-31 or 2030-01-31T12:00Z (UTC); default never',
      },
      ...RATE_FLAGS,
      'replace-lost-keys': {
        help: 'for a data folder whose keys.db is lost or too old: creates the missing accounts of its data. A single account is named default; several are named by their ids',
      },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
  },
  list: {
    summary: 'lists the API keys, revoked and expired ones included',
    flags: { ...LOCATION_FLAGS, ...JSON_FLAG },
  },
  edit: {
    summary: 'changes the name, origins or rate limit of an API key',
    usage: [
      ['sluice keys edit ID --name "shop backend"'],
      ['sluice keys edit ID --origins https://shop.example,https://www.shop.example'],
      ['sluice keys edit ID --users-per-second 500 --burst 5000'],
      ['sluice keys edit ID --no-rate-limit'],
    ],
    argument: KEY_ARGUMENT,
    flags: {
      name: KEY_NAME,
      origins: {
        value: 'LIST',
        help: 'sites a publishable key can be used from, separated by commas; replaces the list; "any" for all',
      },
      ...RATE_FLAGS,
      'no-rate-limit': { help: 'removes the rate limit' },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
  },
  roll: {
    summary: 'replaces an API key without downtime',
    argument: KEY_ARGUMENT,
    flags: {
      overlap: {
        value: 'TIME',
        help: 'how long the old key keeps working, up to 30d; 0 revokes it; default 24h',
      },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
  },
  revoke: {
    summary: 'revokes an API key within 2 seconds; this cannot be undone',
    argument: KEY_ARGUMENT,
    flags: { ...LOCATION_FLAGS, ...JSON_FLAG },
  },
} as const satisfies Record<string, Command>;

const PLAN_ARGUMENT = { value: 'FILE', help: 'the plan file; default sluice-plan.json' } as const;

const PLAN_COMMANDS = {
  infer: {
    summary: 'generates a tracking plan from the events that a server receives',
    usage: [['SLUICE_KEY=sk_prod_… sluice plan infer --out sluice-plan.json']],
    flags: { out: { value: 'FILE', help: 'the file to write; default stdout' }, ...SERVER_FLAGS },
    docs: 'catalogue.md#from-the-catalogue-to-a-tracking-plan',
  },
  types: {
    synopsis: '[FILE]',
    summary: 'writes TypeScript types for the events of a plan file',
    usage: [['sluice plan types [FILE] --out src/events.ts']],
    argument: PLAN_ARGUMENT,
    flags: { out: { value: 'FILE', help: 'the file to write; default stdout' } },
    docs: 'catalogue.md#from-the-catalogue-to-a-tracking-plan',
  },
  push: {
    synopsis: '[FILE]',
    summary: 'makes a file the tracking plan of the account and environment of the key',
    usage: [['SLUICE_KEY=sk_prod_… sluice plan push [FILE] [--url URL]']],
    argument: PLAN_ARGUMENT,
    flags: { ...SERVER_FLAGS, ...JSON_FLAG },
    exitCodes: '0 pushed, 2 the file has errors or was refused, 1 not sent.',
  },
  pull: {
    summary: 'writes the current tracking plan to a file',
    usage: [['sluice plan pull --out sluice-plan.json'], ['sluice plan pull --version 3', 'an older version']],
    flags: {
      out: { value: 'FILE', help: 'the file to write; default stdout' },
      version: { value: 'N', help: 'this version instead of the newest' },
      ...SERVER_FLAGS,
    },
  },
  diff: {
    synopsis: '[FILE]',
    summary: 'compares a plan file with the current tracking plan',
    argument: PLAN_ARGUMENT,
    flags: { ...SERVER_FLAGS, ...JSON_FLAG },
    exitCodes: '0 no difference, 2 different, or the file has errors, 1 not compared.',
  },
  check: {
    synopsis: '[FILE]',
    summary: 'checks a plan file, without a server',
    argument: PLAN_ARGUMENT,
    flags: {},
    exitCodes: '0 valid, 2 errors: each is printed with its path.',
  },
} as const satisfies Record<string, Command>;

const COMMANDS = {
  serve: {
    synopsis: '[settings]',
    summary: 'starts the server; the first start prints a link and a key',
    usage: [
      ['sluice serve', 'everything at its default'],
      ['sluice serve --port 0 --data /var/lib/sluice', 'any free port, data in another folder'],
      ['HOST=0.0.0.0 SLUICE_ENVIRONMENT=production sluice serve'],
      ['STORE_URL=postgres://… LOG_URL=kafka://… sluice serve --role edge'],
    ],
    flags: SETTING_FLAGS,
    note: 'Sizes: 4096, 512kB, 64MB, 2GB (1kB is 1024 bytes). Times: 500ms, 30s, 5m, 12h, 7d; for retention also "forever".',
    docs: 'operating.md',
  },
  keys: {
    summary: 'manages API keys, also while a server is running',
    usage: [
      ['sluice keys create --name "shop backend" --kind secret --env production'],
      ['sluice keys list'],
      ['sluice keys edit ID --users-per-second 500'],
      ['sluice keys roll ID --overlap 24h'],
      ['sluice keys revoke ID'],
    ],
    flags: {},
    commands: KEYS_COMMANDS,
  },
  invite: {
    summary: 'creates a one-time link to sign in to the dashboard',
    usage: [['sluice invite', 'for the first person who opens it'], ['sluice invite --email ada@example.com']],
    flags: {
      email: { value: 'EMAIL', help: 'for this person alone; for a member, the link sets a new password' },
      account: { value: 'NAME', help: 'the account to join, created if it is new; required if there are several' },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
  },
  config: {
    synopsis: '[settings]',
    summary: 'shows each setting, its value and where the value came from',
    usage: [['sluice config [settings] [--json]']],
    flags: { ...SETTING_FLAGS, ...JSON_FLAG },
    docs: 'operating.md#settings',
  },
  tail: {
    summary: 'shows events as they are processed, one line each, until Ctrl-C',
    flags: {
      event: { value: 'NAME', help: 'only events of this name' },
      since: { value: 'TIME', help: 'begin with those of the last 10m, 2h, …, by event time' },
      personal: PERSONAL_FLAG,
      ...TENANT_FLAGS,
    },
  },
  trace: {
    summary: 'shows what happened to a request',
    argument: {
      value: 'ID',
      help: 'the trace_id, from the response, its X-Trace-Id header or the server log; or the id of a stored event (UUID.0.0), not its $event_id',
    },
    flags: { ...LOCATION_FLAGS, ...JSON_FLAG },
    exitCodes: '0 found, 1 not found.',
  },
  profile: {
    summary: 'shows a person: properties, events, and why the identifiers are one person',
    usage: [
      ['sluice profile user_id=42'],
      ['sluice profile email=ada@example.com'],
      ['sluice profile "phone_number=+49 30 1234567"'],
      ['sluice profile anon_id=visitor-1'],
      ['sluice profile 0192f3a4-…', 'a profile id, also of a profile that was merged into another'],
    ],
    argument: {
      value: 'PERSON',
      help: 'an identifier with its value, or a profile id',
      choices: ['user_id=', 'email=', 'phone_number=', 'anon_id='],
    },
    flags: TENANT_FLAGS,
    exitCodes: '0 found, 1 no person has this identifier.',
  },
  import: {
    summary: 'sends the users in a file to a server, as any client would',
    usage: [
      ['SLUICE_KEY=sk_dev_… sluice import FILE.ndjson', 'to the server on this data folder'],
      ['sluice import FILE.ndjson --url https://sluice.example --key KEY'],
      ['zcat users.ndjson.gz | sluice import - --key KEY'],
    ],
    argument: { value: 'FILE', help: 'one user object per line, as in the users array of a request; - for stdin' },
    flags: {
      restart: { help: 'start from the beginning instead of where an interrupted import stopped' },
      ...SENDING_FLAGS,
    },
    exitCodes: '0 all users were accepted, 2 some were rejected, 1 it stopped and can be run again.',
  },
  check: {
    summary: 'checks whether the requests in a file would be accepted, for CI',
    usage: [
      ['sluice check samples.ndjson', 'against the validation rules'],
      ['sluice check samples.ndjson --plan plan.json', 'and a tracking plan file'],
      ['sluice check request.json --url URL --key KEY', 'and the plan and the people of a server'],
    ],
    argument: {
      value: 'FILE',
      help: 'FILE.json: a request, a user, or an array of either; any other file: one of them per line; - for stdin',
    },
    flags: {
      plan: { value: 'FILE', help: 'a tracking plan to check against, without a server' },
      ...SERVER_FLAGS,
      ...JSON_FLAG,
    },
    exitCodes:
      '0 everything would be accepted and follows the plan, 2 something would be rejected or violates the plan (in any mode), 1 it could not be checked.',
    docs: 'check.md',
  },
  send: {
    synopsis: 'EVENT name=value…',
    summary: 'sends one event of one person to a server',
    usage: [
      ['SLUICE_KEY=sk_dev_… sluice send order_placed --user-id ada revenue=42.5 currency=EUR'],
      ['sluice send signed_up --email ada@example.com --anon-id visitor-1 plan=pro', 'joins the two'],
      ['sluice send refunded --user-id ada revenue=-42.5 timestamp=2026-11-01T12:00:00Z'],
      ['sluice send page_viewed --anon-id visitor-1 --url https://sluice.example --key KEY'],
    ],
    argument: { value: 'EVENT', help: 'the event name; after it, the fields of the event as name=value' },
    flags: {
      'user-id': { value: 'ID', help: 'the user_id of the person; at least one of these four identifiers is required' },
      email: { value: 'ADDRESS', help: 'the e-mail address of the person' },
      'phone-number': { value: 'NUMBER', help: 'the phone number of the person' },
      'anon-id': { value: 'ID', help: 'the anonymous id of the person' },
      ...SENDING_FLAGS,
    },
    exitCodes: '0 the event was accepted, 2 it was rejected, 1 it was not sent. The reason names the field.',
  },
  rejections: {
    summary: 'shows what was rejected and why',
    usage: [
      ['sluice rejections', 'the reasons, and how many users are not fixed yet'],
      ['sluice rejections --reason REASON', 'the users of one reason'],
      ['sluice rejections --list --from 24h --json'],
    ],
    flags: {
      list: { help: 'list users even without a filter' },
      ...REJECTION_FLAGS,
      all: { help: 'also those that were resubmitted' },
      ...SERVER_FLAGS,
      json: { help: 'print JSON, for programs; users are printed one per line, with their payload' },
    },
    docs: 'resubmit.md',
  },
  resubmit: {
    synopsis: '[ID]',
    summary: 'fixes rejected users: one by hand, or many with a JSON Patch',
    usage: [
      ['sluice resubmit ID --user FILE', 'FILE has the whole user, corrected'],
      ['sluice resubmit --reason REASON --patch FILE --dry-run', 'what would happen to each'],
      ['sluice resubmit --reason REASON --patch FILE'],
    ],
    argument: { value: 'ID', help: 'a rejected user, from "sluice rejections"' },
    flags: {
      user: { value: 'FILE', help: 'the corrected user of ID, as JSON; - for stdin' },
      patch: { value: 'FILE', help: 'a JSON Patch (RFC 6902) for all that match; - for stdin' },
      ...REJECTION_FLAGS,
      'dry-run': { help: 'only show what would happen to them' },
      ...SERVER_FLAGS,
      ...JSON_FLAG,
    },
    exitCodes:
      '0 all were accepted, 2 some are still rejected or too large to be patched (with --dry-run: would be), 1 it could not be done.',
    docs: 'resubmit.md',
  },
  'dead-letters': {
    summary: 'lists dead letters (accepted requests that failed), or retries them',
    usage: [
      ['sluice dead-letters'],
      ['sluice dead-letters --retry ID'],
      ['sluice dead-letters --retry all --cause "TypeError: "'],
    ],
    flags: {
      retry: { value: 'ID', help: 'retry this one, or all' },
      cause: { value: 'TEXT', help: 'only those whose cause begins with this text' },
      ...SERVER_FLAGS,
      ...JSON_FLAG,
    },
    exitCodes: '0 done, 2 some still cannot be processed, 1 it could not be done.',
    docs: 'resubmit.md#dead-letters',
  },
  demo: {
    summary: 'sends the events of a small sample shop to a server',
    usage: [['SLUICE_KEY=sk_dev_… sluice demo', 'to the server on this data folder'], ['sluice demo --seed 7 --yes']],
    flags: {
      seed: { value: 'NUMBER', help: 'a different number generates a different shop; default 1' },
      yes: { help: 'send even if the server has data already, or if the key is for production' },
      ...SERVER_FLAGS,
    },
    exitCodes: '0 everything was sent, 1 it was not; run it again to send the rest.',
  },
  plan: {
    summary: 'manages the tracking plan: the events you expect and their properties',
    usage: [
      ['sluice plan infer --out sluice-plan.json'],
      ['sluice plan pull --out sluice-plan.json'],
      ['sluice plan check'],
      ['sluice plan diff'],
      ['sluice plan push'],
    ],
    flags: {},
    commands: PLAN_COMMANDS,
    docs: 'plans.md',
  },
  export: {
    synopsis: '--format FORMAT',
    summary: 'writes events or profiles as ndjson, csv or parquet',
    usage: [['sluice export --format ndjson|csv|parquet [--what events|profiles] [--out FILE] [options]']],
    flags: {
      format: { value: 'FORMAT', help: 'ndjson, csv or parquet', choices: EXPORT_FORMATS },
      what: {
        value: 'WHAT',
        help: 'events (newest first) or profiles (oldest first); default events',
        choices: EXPORT_KINDS,
      },
      out: { value: 'FILE', help: 'the file to write; default stdout (not for parquet)' },
      from: { value: 'TIME', help: 'events at or after this time: 24h (ago), 2026-01-31, 2026-01-31T12:00Z (UTC)' },
      to: { value: 'TIME', help: 'events before this time' },
      event: { value: 'NAME', help: 'only events of this name' },
      overwrite: { help: 'replace FILE if it exists' },
      restart: { help: 'start over instead of continuing an interrupted export' },
      raw: { help: 'csv for programs: text as it was sent; spreadsheet formulas are not neutralised' },
      personal: PERSONAL_FLAG,
      ...TENANT_FLAGS,
    },
  },
  doctor: {
    summary: 'checks the installation and says what to do next',
    flags: {
      deep: { help: 'read the whole store and count its events: slow, thorough' },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
    exitCodes: '0 everything is OK, 1 errors, 2 warnings only.',
  },
  migrate: {
    synopsis: '--to URL',
    summary: 'copies all of an embedded installation to PostgreSQL',
    usage: [['sluice migrate --to postgres://user:password@host:5432/database [--data FOLDER]']],
    flags: {
      to: {
        value: 'URL',
        help: 'an empty database (STORE_URL, which keeps the password out of the process list)',
      },
      ...DATA_FLAG,
      ...JSON_FLAG,
    },
    exitCodes: '0 both sides match, 1 they differ or it failed; stderr or the table says why.',
  },
  backup: {
    synopsis: '--to FOLDER|FILE',
    summary: 'makes a consistent copy of log, store and keys, also while the server runs',
    usage: [
      ['sluice backup --to FOLDER|FILE [--verify]', 'make one'],
      ['sluice backup --verify FOLDER|FILE', 'check an existing one'],
    ],
    argument: { value: 'FILE', help: 'with --verify alone: the backup to check, a file or a folder' },
    flags: {
      to: {
        value: 'FILE',
        help: 'the new backup; must not exist yet. A name that ends in .tar, .tar.gz, .tgz or .tar.zst is an archive, any other name a folder',
      },
      verify: {
        help: 'read the backup back: hashes, every database page, every log record, and whether every event is accounted for. Unpacks an archive next to itself, which doubles the space',
      },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
    exitCodes: '0 success, 1 nothing was kept, or the backup is damaged; stderr says why.',
    docs: 'backup.md',
  },
  restore: {
    synopsis: '--from FOLDER|FILE',
    summary: 'restores a backup into an empty data folder',
    usage: [['sluice restore --from FOLDER|FILE [--data FOLDER] [--verify]']],
    flags: {
      from: { value: 'FILE', help: 'a backup that "sluice backup" made, a file or a folder' },
      verify: {
        help: 'also read everything that was restored, as "sluice backup --verify" does; hashes are compared in any case',
      },
      ...LOCATION_FLAGS,
      ...JSON_FLAG,
    },
    exitCodes: '0 success, 1 nothing was restored; stderr says why.',
    docs: 'backup.md#restore',
  },
  completion: {
    summary: 'prints a script that completes commands in your shell',
    usage: [
      ['eval "$(sluice completion bash)"', 'in ~/.bashrc'],
      ['eval "$(sluice completion zsh)"', 'in ~/.zshrc, after compinit'],
      ['sluice completion fish > ~/.config/fish/completions/sluice.fish', 'once'],
    ],
    argument: { value: 'SHELL', help: 'bash, zsh or fish', choices: COMPLETION_SHELLS },
    flags: {},
  },
  help: {
    synopsis: '[COMMAND]',
    summary: 'shows the help of a command; the same as sluice COMMAND --help',
    usage: [['sluice help export'], ['sluice help keys create']],
    flags: {},
    docs: 'commands.md',
  },
} as const satisfies Record<string, Command>;

export type CommandName = keyof typeof COMMANDS;

/** How a command or subcommand is called: `keys create`. */
export type CommandPath = CommandName | `${CommandName} ${string}`;

/** The same with a plain type, for iterating over all of them. */
export const ALL_COMMANDS: Readonly<Record<string, Command>> = COMMANDS;

/** The command that the words name, with how it is called: `keys create` for those two. Undefined if there is none. */
export function findCommand(words: readonly string[]): { path: string; command: Command } | undefined {
  let found: { path: string; command: Command } | undefined;
  let among: Readonly<Record<string, Command>> = ALL_COMMANDS;
  for (const word of words) {
    const command = Object.hasOwn(among, word) ? among[word] : undefined;
    if (command === undefined) return undefined;
    found = { path: found === undefined ? word : `${found.path} ${word}`, command };
    among = command.commands ?? {};
  }
  return found;
}
