/**
 * The words of --help. The part on settings is made from the table in config.ts, so it cannot lie about a default.
 * Lines fit into 100 columns.
 */

import { formatSetting, SETTING_NAMES, SETTINGS } from '../config.ts';
import { type Ink, wrap } from './table.ts';

const COLUMNS = 100;

export function wantsHelp(args: readonly string[]): boolean {
  return args.some((arg) => arg === '--help' || arg === '-h');
}

export function mainHelp(ink: Ink): string {
  return `${ink.bold('sluice')}: takes customer events in over HTTP, fast, without losing any.

${ink.bold('Usage')}
  sluice serve [settings]         start the server; the first start prints a key and a curl line
  sluice keys create|list|revoke  make, see and withdraw API keys, also while a server runs
  sluice config [settings]        show each setting, its value and where that came from
  sluice --help | --version       and sluice keys --help for more about keys

${ink.bold('Examples')}
  sluice serve                                       ${ink.dim('everything at its default')}
  sluice serve --port 0 --data /var/lib/sluice       ${ink.dim('any free port, data kept elsewhere')}
  HOST=0.0.0.0 SLUICE_ENVIRONMENT=production sluice serve
  sluice keys create --name "shop backend" --kind secret --env production

${ink.bold('Settings')}
  Each is a flag and an environment variable; the flag wins.
  Sizes: 4096, 512kB, 64MB, 2GB (1kB is 1024 bytes). Times: 500ms, 30s, 5m, 12h, 7d.

${settingsHelp(ink)}

A 202 means that the events are on disk. Stop the server with SIGTERM or Ctrl-C: it finishes what is
under way. Exit codes: 0 all went well, 1 something needs your attention (stderr says what).
`;
}

function settingsHelp(ink: Ink): string {
  const indent = ' '.repeat(6);
  return SETTING_NAMES.map((name) => {
    const { flag, placeholder, env, description } = SETTINGS[name];
    const usage = `--${flag} ${placeholder}`.padEnd(26);
    const preset = formatSetting(name, SETTINGS[name].default);
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
  --data FOLDER        the data folder of the server (SLUICE_DATA, default ${SETTINGS.dataFolder.default})
  --json               for programs

A key is shown once, when it is made; only its SHA-256 is kept. A lost key is revoked and replaced.
Several keys can be active at once: to rotate, make the new one, move over, revoke the old one.
`;
}

export function configHelp(ink: Ink): string {
  return `${ink.bold('sluice config')}: shows each setting, its value, and where that came from. Starts nothing.

${ink.bold('Usage')}
  sluice config [settings] [--json]

Takes the flags of "sluice serve" and reads the same environment, so it shows what serve would do.
`;
}
