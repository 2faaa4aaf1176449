/**
 * The command line and the composition root of the main thread. Backends are opened through `wiring/opening.ts`, which loads
 * each only when it is used.
 */

import { readFileSync } from 'node:fs';
import type { CommandName } from './cli/commands.ts';
import type { Shell } from './cli/shell.ts';
import type { Env } from './config/config.ts';
import { OperatorError } from './errors.ts';

type Runner = (args: readonly string[], shell: Shell) => Promise<number>;

/** One for each command of the table in cli/commands.ts but `serve`. Help is printed before any of them is asked. */
const RUNNERS: Readonly<Record<Exclude<CommandName, 'serve'>, Runner>> = {
  keys: async (args, shell) => (await import('./cli/keys.ts')).runKeys(args, shell),
  invite: async (args, shell) => (await import('./cli/invite.ts')).runInvite(args, shell),
  config: async (args, shell) => (await import('./cli/config.ts')).runConfig(args, shell),
  tail: async (args, shell) => (await import('./cli/tail.ts')).runTail(args, shell),
  trace: async (args, shell) => (await import('./cli/trace.ts')).runTrace(args, shell),
  profile: async (args, shell) => (await import('./cli/profile.ts')).runProfile(args, shell),
  import: async (args, shell) => (await import('./cli/import.ts')).runImport(args, shell),
  check: async (args, shell) => (await import('./cli/check.ts')).runCheck(args, shell),
  send: async (args, shell) => (await import('./cli/send.ts')).runSend(args, shell),
  rejections: async (args, shell) => (await import('./cli/rejections.ts')).runRejections(args, shell),
  resubmit: async (args, shell) => (await import('./cli/resubmit.ts')).runResubmit(args, shell),
  'dead-letters': async (args, shell) => (await import('./cli/dead-letters.ts')).runDeadLetters(args, shell),
  demo: async (args, shell) => (await import('./cli/demo.ts')).runDemo(args, shell),
  plan: async (args, shell) => (await import('./cli/plan.ts')).runPlan(args, shell),
  export: async (args, shell) => (await import('./cli/export.ts')).runExport(args, shell),
  doctor: runDoctorCommand,
  migrate: runMigrateCommand,
  backup: async (args, shell) =>
    (await import('./cli/backup.ts')).runBackup(args, { ...shell, ...(await folderParts()) }),
  restore: async (args, shell) =>
    (await import('./cli/restore.ts')).runRestore(args, { ...shell, ...(await folderParts()) }),
  completion: async (args, shell) => (await import('./cli/completion.ts')).runCompletion(args, shell),
  help: async (args, shell) => (await import('./cli/help.ts')).runHelp(args, shell),
};

/** They do not look at `shell.stop`: a signal ends them at once, also while they wait for a database. */
const ENDED_BY_SIGNALS: ReadonlySet<string> = new Set<CommandName>([
  'keys',
  'invite',
  'config',
  'trace',
  'profile',
  'completion',
  'help',
]);

function out(text: string): void {
  process.stdout.write(text);
}

function versionOf(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(file) as { version: string }).version;
}

async function run(args: readonly string[], env: Env): Promise<number> {
  const [command, ...rest] = args;
  const { commandHelp, mainHelp, unknownCommand, wantsHelp } = await import('./cli/help.ts');
  // The reader may have seen enough: `sluice config | head`. Commands have their own listener.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return;
    process.stderr.write(`sluice: the output cannot be written: ${error.message}\n`);
    process.exit(1);
  });
  if (command === undefined || command === '--help' || command === '-h') {
    out(mainHelp());
    return command === undefined ? 1 : 0;
  }
  if (command === '--version' || command === '-v' || command === 'version') {
    out(`sluice ${versionOf()}\n`);
    return 0;
  }
  if (command !== 'serve' && !isCommand(command)) throw unknownCommand([command]);
  if (wantsHelp(command, rest)) {
    out(commandHelp(command, rest));
    return 0;
  }
  if (command === 'serve') return (await import('./wiring/serve.ts')).serve(rest, env, versionOf());
  const { shellOf } = await import('./cli/shell.ts');
  const stores = await import('./wiring/opening.ts');
  return RUNNERS[command](rest, shellOf(env, stores, !ENDED_BY_SIGNALS.has(command)));
}

function isCommand(command: string): command is keyof typeof RUNNERS {
  return Object.hasOwn(RUNNERS, command);
}

async function runDoctorCommand(args: readonly string[], shell: Shell): Promise<number> {
  const { doctorParts } = await import('./wiring/doctor-parts.ts');
  return (await import('./cli/doctor.ts')).runDoctor(args, { ...shell, ...(await doctorParts()) });
}

async function runMigrateCommand(args: readonly string[], shell: Shell): Promise<number> {
  const { lockFolder } = await import('./backends/embedded/folder-lock.ts');
  const { openSqliteMigrationSource: openSource } = await import('./backends/embedded/migration-source.ts');
  const { openPostgresMigrationTarget: openTarget } = await import('./backends/postgres/migration-target.ts');
  return (await import('./cli/migrate.ts')).runMigrate(args, { ...shell, lockFolder, openSource, openTarget });
}

/** What the commands on backups do with the files of a data folder. */
async function folderParts() {
  return {
    ...(await import('./backends/embedded/backup/backup.ts')),
    ...(await import('./backends/embedded/backup/restore.ts')),
    ...(await import('./backends/embedded/checkup.ts')),
    ...(await import('./backends/embedded/folder-lock.ts')),
    version: versionOf(),
  };
}

// Run by `bin/sluice.js` under another Node: when that one is killed, nothing else stops this one.
if (process.connected) {
  process.channel?.unref();
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
}

try {
  const { processEnvironment } = await import('./config/config.ts');
  process.exitCode = await run(process.argv.slice(2), processEnvironment());
} catch (error) {
  if (!(error instanceof OperatorError)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
}
