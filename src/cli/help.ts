/**
 * The words of --help. The part on settings is made from the table in config.ts, so it cannot lie about a default.
 * Lines fit into 100 columns.
 */

import { formatSetting, SETTING_NAMES, SETTINGS } from '../config.ts';
import { type Ink, wrap } from './table.ts';

const COLUMNS = 100;

/** Where the data is; the same for all commands that need it. */
const PLACE_HELP = `  --data FOLDER        the data folder of the server (SLUICE_DATA, default ${SETTINGS.dataFolder.default})
  --store-url URL      the database, where servers share one; as STORE_URL it stays out of the list
                       of processes
  --log-url URL        the topic, where servers share one (LOG_URL)`;

export function wantsHelp(args: readonly string[]): boolean {
  return args.some((arg) => arg === '--help' || arg === '-h');
}

export function mainHelp(ink: Ink): string {
  return `${ink.bold('sluice')}: takes customer events in over HTTP, fast, without losing any.

${ink.bold('Usage')}
  sluice serve [settings]         start the server; the first start prints a link and a key
  sluice keys create|list|revoke  make, see and withdraw API keys, also while a server runs
  sluice invite [--email WHO]     a link with which somebody can sign in to the dashboard
  sluice config [settings]        show each setting, its value and where that came from
  sluice tail                     watch events as they come in
  sluice trace ID                 what became of a request
  sluice profile user_id=42       who someone is, and why that is one person
  sluice import FILE.ndjson       send the users in a file to a server
  sluice export --format FORMAT   events or profiles as ndjson, csv or parquet
  sluice doctor                   look at everything, and say what to do
  sluice migrate --to URL         carry everything over to PostgreSQL
  sluice --help | --version       and sluice COMMAND --help for more about a command

${ink.bold('Examples')}
  sluice serve                                       ${ink.dim('everything at its default')}
  sluice serve --port 0 --data /var/lib/sluice       ${ink.dim('any free port, data kept elsewhere')}
  HOST=0.0.0.0 SLUICE_ENVIRONMENT=production sluice serve
  STORE_URL=postgres://… LOG_URL=kafka://… sluice serve --role edge
  sluice keys create --name "shop backend" --kind secret --env production

${ink.bold('Settings')}
  Each is a flag and an environment variable; the flag wins.
  Sizes: 4096, 512kB, 64MB, 2GB (1kB is 1024 bytes). Times: 500ms, 30s, 5m, 12h, 7d.

${settingsHelp(ink)}

A 202 means that the events are on disk. Stop the server with SIGTERM (it drains first, see --drain)
or Ctrl-C: it finishes what is under way. Exit codes: 0 all went well, 1 something needs your
attention (stderr says what).
`;
}

function settingsHelp(ink: Ink): string {
  const indent = ' '.repeat(6);
  return SETTING_NAMES.map((name) => {
    const { flag, placeholder, env, description } = SETTINGS[name];
    const usage = `--${flag} ${placeholder}`.padEnd(26);
    const preset = formatSetting(name, SETTINGS[name].default) || 'none';
    return [
      `  ${ink.bold(usage)}  ${env.padEnd(22)}  ${ink.dim(`default ${preset}`)}`,
      ...wrap(description, COLUMNS - indent.length).map((line) => indent + line),
    ].join('\n');
  }).join('\n');
}

export function keysHelp(ink: Ink): string {
  return `${ink.bold('sluice keys')}: API keys. They work beside a running server, which heeds a change within 2 s.

${ink.bold('Usage')}
  sluice keys create --name NAME --kind KIND --env ENVIRONMENT [options]
  sluice keys list   [--json]
  sluice keys revoke ID [--json]

${ink.bold('Create')}
  --name NAME          what the key is for, in your words; up to 100 characters
  --kind KIND          ${ink.bold('secret')}       sk_prod_… or sk_dev_…: full access, for servers only
                       ${ink.bold('publishable')}  pk_…: may only send events, safe in browsers and apps
  --env ENVIRONMENT    production or development; their data never mix
  --account NAME       whose key it is; made if it is new. Needed once there are several accounts
  --origins A,B        sites a publishable key may be used from, such as https://shop.example
  --expires WHEN       in 30d or 12h, or on 2030-01-31 or 2030-01-31T12:00Z (UTC); else never

${ink.bold('Everywhere')}
${PLACE_HELP}
  --json               for programs

A key is shown once, when it is made; only its SHA-256 is kept. A lost key is revoked and replaced.
Several keys can be active at once: to rotate, make the new one, move over, revoke the old one.
`;
}

export function inviteHelp(ink: Ink): string {
  return `${ink.bold('sluice invite')}: a one-time link with which somebody can sign in to the dashboard.

${ink.bold('Usage')}
  sluice invite                        ${ink.dim('for whoever opens it first')}
  sluice invite --email ada@example.com

${ink.bold('Options')}
  --email WHO          for this person alone; for a member, the link sets a new password
  --account NAME       where to; made if it is new. Needed once there are several accounts
${PLACE_HELP}
  --json               for programs

The link lasts 7 days; that for the first member of an account, or for a new password, 24 hours. It
is shown once, and works beside a running server at once. Nothing is mailed: hand it on yourself.
SLUICE_PUBLIC_URL says where people reach the server, else the link is for this machine.
`;
}

export function configHelp(ink: Ink): string {
  return `${ink.bold('sluice config')}: shows each setting, its value, and where that came from. Starts nothing.

${ink.bold('Usage')}
  sluice config [settings] [--json]

Takes the flags of "sluice serve" and reads the same environment, so it shows what serve would do.
`;
}

const TENANT_HELP = `  --account NAME       whose data; needed once several accounts have some
  --env ENVIRONMENT    production or development; needed once both have data
${PLACE_HELP}
  --json               for programs; times are UTC there, and local otherwise`;

export function tailHelp(ink: Ink): string {
  return `${ink.bold('sluice tail')}: events as they are processed, one line each, until Ctrl-C.

${ink.bold('Usage')}
  sluice tail [--event NAME] [--since 10m] [--json]

${ink.bold('Options')}
  --event NAME         only events of that name
  --since TIME         begin with those of the last 10m, 2h, …, by their own timestamps
${TENANT_HELP}

A line: time, name, profile (– where nobody could be matched), revenue, properties.
Reads the data folder or the database, and asks no server: without one, it shows what --since
asks for.
`;
}

export function traceHelp(ink: Ink): string {
  return `${ink.bold('sluice trace')}: what became of a request.

${ink.bold('Usage')}
  sluice trace ID [--json]

${ink.bold('Options')}
  ID                   the trace_id: in the answer, in its X-Trace-Id header, in the server's log;
                       the id of an event will do, too
${PLACE_HELP}
  --json               for programs

Looks at all accounts. Exit codes: 0 found, 1 not found.
`;
}

export function profileHelp(ink: Ink): string {
  return `${ink.bold('sluice profile')}: who someone is: identifiers, properties and which request said so, why all
of it is one person, and the last events.

${ink.bold('Usage')}
  sluice profile user_id=42
  sluice profile email=ada@example.com
  sluice profile "phone_number=+49 30 1234567"
  sluice profile anon_id=visitor-1
  sluice profile 0192f3a4-…            ${ink.dim('a profile id; one that was merged away will do')}

${ink.bold('Options')}
${TENANT_HELP}

Exit codes: 0 found, 1 nobody has that identifier.
`;
}

export function importHelp(ink: Ink): string {
  return `${ink.bold('sluice import')}: sends the users in a file to a server, as any client would.

${ink.bold('Usage')}
  sluice import FILE.ndjson --url http://127.0.0.1:8080 --key KEY
  zcat users.ndjson.gz | sluice import - --url URL --key KEY

${ink.bold('Options')}
  --url URL            the server (SLUICE_URL)
  --key KEY            an API key (SLUICE_KEY, which keeps it out of the list of processes)
  --patience TIME      how long to try when the server is away or answers 503; default 10m
  --restart            begin anew, and forget where an interrupted import stopped
  --json               the result for programs

One user object a line, as in the users array of a request. Lines are sent as they are.

${ink.bold('Interrupted?')} Run the same command again: it goes on where FILE.ndjson.import says. Every request
has an Idempotency-Key made of its lines, so what was under way is stored once (within 24 h).
${ink.bold('Rejected?')} FILE.ndjson.rejected.ndjson has each such line with its number and the reason. Mend them
there and import that file. FILE.ndjson, once changed, would be stored again with all its lines.
${ink.bold('Exit codes')}: 0 all went in, 2 some were rejected, 1 it stopped and can be run again.
`;
}

export function exportHelp(ink: Ink): string {
  return `${ink.bold('sluice export')}: events or profiles, in the shape of the HTTP API.

${ink.bold('Usage')}
  sluice export --format ndjson|csv|parquet [--what events|profiles] [--out FILE] [options]

${ink.bold('Options')}
  --format FORMAT      ndjson, csv or parquet
  --what WHICH         events (newest first) or profiles (oldest first); default events
  --out FILE           where to; without it to stdout (not for parquet)
  --from T, --to T     events with a timestamp from T on, and before T: 24h (ago), 2026-01-31,
                       2026-01-31T12:00Z (UTC)
  --event NAME         only events of that name
  --overwrite          replace FILE if it is there
  --restart            begin anew instead of going on with an interrupted export
${TENANT_HELP}

${ink.bold('Interrupted?')} ndjson and csv go on from FILE.part when the same is asked for again; a parquet export
starts over, since a parquet file is whole only with its end.
${ink.bold('csv')}: RFC 4180. Cells are the data as it is: those that begin with = + - @ are not altered, though
spreadsheets may take them for formulas. ${ink.bold('parquet')}: times in milliseconds (UTC), revenue and
event_value as doubles, properties as JSON text.
`;
}

export function doctorHelp(ink: Ink): string {
  return `${ink.bold('sluice doctor')}: looks at settings, data folder, disk, clock, log, backlog, store, books and keys,
and says what to do next; with STORE_URL and LOG_URL also at the database and the topic. Changes
nothing; works beside a running server.

${ink.bold('Usage')}
  sluice doctor [--deep] [--data FOLDER] [--json]

${ink.bold('Options')}
  --deep               read the whole store, and count its events: slow, thorough
${PLACE_HELP}
  --json               for programs

✓ well   ! a warning   ✗ broken. Exit codes: 0 all is well, 1 something is broken, 2 warnings only.
`;
}

export function migrateHelp(ink: Ink): string {
  return `${ink.bold('sluice migrate')}: carries an embedded installation over to PostgreSQL: profiles, events,
traces, books, keys, members, all of it.

${ink.bold('Usage')}
  sluice migrate --to postgres://user:password@host:5432/database [--data FOLDER]

${ink.bold('Options')}
  --to URL             an empty database (STORE_URL, which keeps the password out of the list of
                       processes)
  --data FOLDER        the data folder of the server (SLUICE_DATA, default ${SETTINGS.dataFolder.default})
  --json               the result for programs

Stop the server first: it is refused while one runs on the folder. The files there are read, not
changed. The event log stays where it is; what is not yet processed in it is processed later.

${ink.bold('Interrupted?')} Run the same command again: it goes on where it stopped.
${ink.bold('At the end')} rows and books of both sides are compared, and it says how to start from now on. The
file moved.json in the data folder then keeps an embedded server from going on beside it.
${ink.bold('Exit codes')}: 0 all of it is there, 1 it is not, and stderr or the table says why.
`;
}
