/**
 * The command line and the composition root of the main thread. Backends are opened through `wiring/opening.ts`, which loads
 * each only when it is used.
 */

import { readFileSync } from 'node:fs';
import type { CommandName } from './cli/commands.ts';
import type { InviteIo } from './cli/invite.ts';
import type { Shell } from './cli/shell.ts';
import type { Env } from './config/config.ts';
import { OperatorError } from './errors.ts';

type Runner = (args: readonly string[], env: Env) => Promise<number>;

/** One for each command of the table in cli/commands.ts. Help is printed before any of them is asked. */
const RUNNERS: Readonly<Record<CommandName, Runner>> = {
  serve: async (args, env) => (await import('./wiring/serve.ts')).serve(args, env, versionOf()),
  keys: async (args, env) => (await import('./cli/keys.ts')).runKeys(args, await keysIo(env)),
  invite: async (args, env) => (await import('./cli/invite.ts')).runInvite(args, await keysIo(env)),
  config: async (args, env) => (await import('./cli/config.ts')).runConfig(args, { out, env, isTty: isTty() }),
  tail: onData(async (args, shell) => (await import('./cli/tail.ts')).runTail(args, shell)),
  trace: onData(async (args, shell) => (await import('./cli/trace.ts')).runTrace(args, shell)),
  profile: onData(async (args, shell) => (await import('./cli/profile.ts')).runProfile(args, shell)),
  import: onData(async (args, shell) => (await import('./cli/import.ts')).runImport(args, shell)),
  check: onData(async (args, shell) => (await import('./cli/check.ts')).runCheck(args, shell)),
  send: onData(async (args, shell) => (await import('./cli/send.ts')).runSend(args, shell)),
  rejections: onData(async (args, shell) => (await import('./cli/rejections.ts')).runRejections(args, shell)),
  resubmit: onData(async (args, shell) => (await import('./cli/resubmit.ts')).runResubmit(args, shell)),
  'dead-letters': onData(async (args, shell) => (await import('./cli/dead-letters.ts')).runDeadLetters(args, shell)),
  demo: onData(async (args, shell) => (await import('./cli/demo.ts')).runDemo(args, shell)),
  plan: onData(async (args, shell) => (await import('./cli/plan.ts')).runPlan(args, shell)),
  export: onData(async (args, shell) => (await import('./cli/export.ts')).runExport(args, shell)),
  doctor: onData(runDoctorCommand),
  migrate: onData(runMigrateCommand),
  backup: onData(runBackupCommand),
  restore: onData(runRestoreCommand),
  completion: async (args) => (await import('./cli/completion.ts')).runCompletion(args, out),
  help: runHelpCommand,
};

function isCommand(command: string): command is CommandName {
  return Object.hasOwn(RUNNERS, command);
}

function out(text: string): void {
  process.stdout.write(text);
}

function isTty(): boolean {
  return process.stdout.isTTY;
}

function versionOf(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(file) as { version: string }).version;
}

async function run(args: readonly string[], env: Env): Promise<number> {
  const [command, ...rest] = args;
  const [{ commandHelp, mainHelp, unknownCommand, wantsHelp }, { inkFor }] = await Promise.all([
    import('./cli/help.ts'),
    import('./cli/table.ts'),
  ]);
  const ink = inkFor(isTty(), env);
  // The reader may have seen enough: `sluice config | head`. Commands on data have their own listener.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  if (command === undefined || command === '--help' || command === '-h') {
    out(mainHelp(ink));
    return command === undefined ? 1 : 0;
  }
  if (command === '--version' || command === '-v' || command === 'version') {
    out(`sluice ${versionOf()}\n`);
    return 0;
  }
  if (!isCommand(command)) throw unknownCommand([command]);
  if (wantsHelp(rest)) {
    out(commandHelp(command, rest, ink));
    return 0;
  }
  return RUNNERS[command](rest, env);
}

async function runHelpCommand(args: readonly string[], env: Env): Promise<number> {
  const [{ helpOn }, { inkFor }] = await Promise.all([import('./cli/help.ts'), import('./cli/table.ts')]);
  out(helpOn(args, inkFor(isTty(), env)));
  return 0;
}

async function keysIo(env: Env): Promise<InviteIo> {
  return { out, env, isTty: isTty(), now: Date.now, ...(await import('./wiring/opening.ts')) };
}

/** A command on what is in the data folder or the database, or on its way there. */
function onData(command: (args: readonly string[], shell: Shell) => Promise<number>): Runner {
  return async (args, env) => {
    const [{ shellOf }, stores] = await Promise.all([import('./cli/shell.ts'), import('./wiring/opening.ts')]);
    return command(args, shellOf(process, { env, ...stores }));
  };
}

async function runDoctorCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [{ runDoctor }, { doctorParts }] = await Promise.all([
    import('./cli/doctor.ts'),
    import('./wiring/doctor-parts.ts'),
  ]);
  return runDoctor(args, { ...shell, ...(await doctorParts()) });
}

async function runMigrateCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [{ runMigrate }, { lockFolder }, source, target] = await Promise.all([
    import('./cli/migrate.ts'),
    import('./backends/embedded/folder-lock.ts'),
    import('./backends/embedded/migration-source.ts'),
    import('./backends/postgres/migration-target.ts'),
  ]);
  const [openSource, openTarget] = [source.openSqliteMigrationSource, target.openPostgresMigrationTarget];
  return runMigrate(args, { ...shell, lockFolder, openSource, openTarget });
}

async function runBackupCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [{ runBackup }, parts, { freeBytesOf }] = await Promise.all([
    import('./cli/backup.ts'),
    import('./backends/embedded/backup/backup.ts'),
    import('./backends/embedded/checkup.ts'),
  ]);
  return runBackup(args, { ...shell, ...parts, freeBytesOf, version: versionOf() });
}

async function runRestoreCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [{ runRestore }, parts, { checkDataFolder }, { freeBytesOf }, { lockFolder }] = await Promise.all([
    import('./cli/restore.ts'),
    import('./backends/embedded/backup/restore.ts'),
    import('./backends/embedded/backup/backup.ts'),
    import('./backends/embedded/checkup.ts'),
    import('./backends/embedded/folder-lock.ts'),
  ]);
  return runRestore(args, { ...shell, ...parts, checkDataFolder, freeBytesOf, lockFolder });
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
