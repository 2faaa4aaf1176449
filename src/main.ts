/**
 * The command line and the composition root of the main thread. Backends are opened through `opening.ts`, which loads
 * each only when it is used.
 */

import { readFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import type { Shell } from './cli/shell.ts';
import type { Env } from './config.ts';
import { keyFileOf, logFolderOf, storeFileOf } from './data-folder.ts';
import { OperatorError } from './errors.ts';

// What is loaded from here on is compiled once per machine; so everything else is loaded from here on.
enableCompileCache();

/** The commands on what is in the data folder, or on its way there. They answer --help themselves. */
const DATA_COMMANDS = {
  tail: async (args: readonly string[], shell: Shell) => (await import('./cli/tail.ts')).runTail(args, shell),
  trace: async (args: readonly string[], shell: Shell) => (await import('./cli/trace.ts')).runTrace(args, shell),
  profile: async (args: readonly string[], shell: Shell) => (await import('./cli/profile.ts')).runProfile(args, shell),
  import: async (args: readonly string[], shell: Shell) => (await import('./cli/import.ts')).runImport(args, shell),
  export: async (args: readonly string[], shell: Shell) => (await import('./cli/export.ts')).runExport(args, shell),
  doctor: runDoctorCommand,
  migrate: runMigrateCommand,
};
/** Those of the others that answer --help themselves. */
const HELPFUL = new Set(['keys', 'invite', 'config']);
type DataCommand = keyof typeof DATA_COMMANDS;
const COMMANDS = ['serve', 'keys', 'invite', 'config', ...Object.keys(DATA_COMMANDS)];

function isDataCommand(command: string | undefined): command is DataCommand {
  return command !== undefined && Object.hasOwn(DATA_COMMANDS, command);
}

function versionOf(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(file) as { version: string }).version;
}

async function run(args: readonly string[], env: Env): Promise<number> {
  const [command, ...rest] = args;
  if (isDataCommand(command)) return runDataCommand(command, rest, env);
  const isTty = process.stdout.isTTY;
  const out = (text: string): void => void process.stdout.write(text);
  // Whoever reads may have seen enough: `sluice config | head`.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  const { mainHelp, wantsHelp } = await import('./cli/help.ts');
  const { inkFor } = await import('./cli/table.ts');
  if (command === '--version' || command === '-v' || command === 'version') {
    out(`sluice ${versionOf()}\n`);
    return 0;
  }
  if (command === undefined || command === 'help' || (wantsHelp(args) && !HELPFUL.has(command))) {
    out(mainHelp(inkFor(isTty, env)));
    return command === undefined ? 1 : 0;
  }
  switch (command) {
    case 'serve': {
      const { serve } = await import('./serve.ts');
      return serve(rest, env, versionOf());
    }
    case 'keys': {
      const [{ runKeys }, { openKeyStore, findKeyStore }] = await Promise.all([
        import('./cli/keys.ts'),
        import('./opening.ts'),
      ]);
      return runKeys(rest, { out, env, isTty, now: Date.now, openKeyStore, findKeyStore });
    }
    case 'invite': {
      const [{ runInvite }, { openKeyStore, findKeyStore, openMemberStore }] = await Promise.all([
        import('./cli/invite.ts'),
        import('./opening.ts'),
      ]);
      return runInvite(rest, { out, env, isTty, now: Date.now, openKeyStore, findKeyStore, openMemberStore });
    }
    case 'config': {
      const { runConfig } = await import('./cli/config.ts');
      return runConfig(rest, { out, env, isTty });
    }
    default: {
      const { suggestion } = await import('./cli/flags.ts');
      const meant = suggestion(command, COMMANDS);
      throw new OperatorError(`"${command}" is not a command${meant}\nAll of them: sluice --help`);
    }
  }
}

async function runDataCommand(command: DataCommand, args: readonly string[], env: Env): Promise<number> {
  const [{ shellOf }, { openStore, findKeyStore }] = await Promise.all([
    import('./cli/shell.ts'),
    import('./opening.ts'),
  ]);
  return DATA_COMMANDS[command](args, shellOf(process, { env, openStore, findKeyStore }));
}

async function runDoctorCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [
    { runDoctor },
    { findLogReader, lookAtDatabase },
    { listSegments },
    { freeBytesOf, lockHolderOf, quickCheckOf },
  ] = await Promise.all([
    import('./cli/doctor.ts'),
    import('./opening.ts'),
    import('./backends/sqlite/log-segments.ts'),
    import('./backends/sqlite/checkup.ts'),
  ]);
  return runDoctor(args, {
    ...shell,
    findLogReader,
    segments: (folder, partition) => listSegments(logFolderOf(folder), partition),
    lockHolder: lockHolderOf,
    freeBytes: freeBytesOf,
    quickCheck: async (folder) => quickCheckOf(storeFileOf(folder)),
    lookAtDatabase,
  });
}

async function runMigrateCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [{ runMigrate }, { lockFolder }, { openSqliteMovingSource }, { openPostgresMovingTarget }] = await Promise.all([
    import('./cli/migrate.ts'),
    import('./backends/sqlite/folder-lock.ts'),
    import('./backends/sqlite/moving.ts'),
    import('./backends/postgres/moving.ts'),
  ]);
  return runMigrate(args, {
    ...shell,
    lockFolder,
    openSource: (folder) =>
      openSqliteMovingSource({
        storeFile: storeFileOf(folder),
        keyFile: keyFileOf(folder),
        logFolder: logFolderOf(folder),
      }),
    openTarget: openPostgresMovingTarget,
  });
}

// Run by `bin/sluice.js` under another Node: when that one was killed, nobody is left to stop this one.
if (process.connected) {
  process.channel?.unref();
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
}

try {
  const { processEnvironment } = await import('./config.ts');
  process.exitCode = await run(process.argv.slice(2), processEnvironment());
} catch (error) {
  if (!(error instanceof OperatorError)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
}
