/**
 * The command line and the composition root of the main thread: with `thread.ts`, the only file that names concrete
 * backends, each loaded only when it is used.
 */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { baseUrlOf } from './base-url.ts';
import type { Shell } from './cli/shell.ts';
import type { Env } from './config.ts';
import { keyFileOf, logFolderOf, serverUrlFileOf, storeFileOf } from './data-folder.ts';
import { OperatorError } from './errors.ts';
import type { MemberStore } from './members.ts';
import type { KeyStore, Store } from './store.ts';
import { threadFile } from './threads.ts';

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

async function openKeyStore(file: string): Promise<KeyStore> {
  const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
  return openSqliteKeyStore(file);
}

async function openMemberStore(file: string): Promise<MemberStore> {
  const { openSqliteMemberStore } = await import('./backends/sqlite/members.ts');
  return openSqliteMemberStore(file);
}

/** For the commands, which may block: no thread. */
async function openStore(dataFolder: string, env: Env): Promise<Store> {
  const [{ openSqliteStore }, { openSqliteLogReader }, { createReading }, { matchOptionsOf }, { readConfig }] =
    await Promise.all([
      import('./backends/sqlite/store.ts'),
      import('./backends/sqlite/log-reader.ts'),
      import('./reading.ts'),
      import('./match-options.ts'),
      import('./config.ts'),
    ]);
  const matchOptions = matchOptionsOf(readConfig({ env, args: [] }).config);
  const log = openSqliteLogReader({ folder: logFolderOf(dataFolder), ...READ_ONLY });
  return createReading(openSqliteStore(storeFileOf(dataFolder), { matchOptions }), log);
}

/** A reader of the log for which nothing is ever too old. */
const READ_ONLY = { retentionMs: Number.MAX_SAFE_INTEGER, now: Date.now };

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
    case 'serve':
      return serve(rest, env);
    case 'keys': {
      const { runKeys } = await import('./cli/keys.ts');
      const { openSqliteKeyStore } = await import('./backends/sqlite/keys.ts');
      return runKeys(rest, { out, env, isTty, now: Date.now, openKeyStore: openSqliteKeyStore });
    }
    case 'invite': {
      const [{ runInvite }, { openSqliteKeyStore }, { openSqliteMemberStore }] = await Promise.all([
        import('./cli/invite.ts'),
        import('./backends/sqlite/keys.ts'),
        import('./backends/sqlite/members.ts'),
      ]);
      const opening = { openKeyStore: openSqliteKeyStore, openMemberStore: openSqliteMemberStore };
      return runInvite(rest, { out, env, isTty, now: Date.now, ...opening });
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
  const [{ shellOf }, { openSqliteKeyStore }] = await Promise.all([
    import('./cli/shell.ts'),
    import('./backends/sqlite/keys.ts'),
  ]);
  const openStoreOf = (folder: string): Promise<Store> => openStore(folder, env);
  const shell = shellOf(process, { env, openStore: openStoreOf, openKeyStore: openSqliteKeyStore });
  return DATA_COMMANDS[command](args, shell);
}

async function runDoctorCommand(args: readonly string[], shell: Shell): Promise<number> {
  const [{ openSqliteLogReader }, { runDoctor }, { listSegments }, { freeBytesOf, lockHolderOf, quickCheckOf }] =
    await Promise.all([
      import('./backends/sqlite/log-reader.ts'),
      import('./cli/doctor.ts'),
      import('./backends/sqlite/log-segments.ts'),
      import('./backends/sqlite/checkup.ts'),
    ]);
  return runDoctor(args, {
    ...shell,
    openLogReader: (folder) => openSqliteLogReader({ folder: logFolderOf(folder), ...READ_ONLY }),
    segments: (folder, partition) => listSegments(logFolderOf(folder), partition),
    lockHolder: lockHolderOf,
    freeBytes: freeBytesOf,
    quickCheck: async (folder) => quickCheckOf(storeFileOf(folder)),
  });
}

/** Runs until a signal; resolves with the exit code. */
async function serve(args: readonly string[], env: Env): Promise<number> {
  const { loadConfig } = await import('./config.ts');
  const { config, sources } = loadConfig({ env, args });
  const { lockFolder } = await import('./backends/sqlite/folder-lock.ts');
  const lock = lockFolder(config.dataFolder);
  mkdirSync(logFolderOf(config.dataFolder), { recursive: true, mode: 0o700 });

  const [{ Supervisor, metricsSlots }, { allocateMetrics }, { createLogger }, { announceStart }] = await Promise.all([
    import('./supervisor.ts'),
    import('./metrics.ts'),
    import('./logger.ts'),
    import('./cli/announce.ts'),
  ]);
  const version = versionOf();
  const logger = createLogger(config.logLevel, 'main');
  const keyStore = await openKeyStore(keyFileOf(config.dataFolder));
  const supervisor = new Supervisor({
    config,
    sources,
    keyStore,
    metricsBuffer: allocateMetrics(metricsSlots(config.edges)),
    logger,
    version,
    threadFile: threadFile('./thread', import.meta.url),
  });
  const stopped = stopOnSignal();
  const port = await supervisor.start();
  writeFileSync(serverUrlFileOf(config.dataFolder), `${baseUrlOf(config.host, port)}\n`, { mode: 0o600 });
  logger.info({ version, host: config.host, port, edges: config.edges, pid: process.pid }, 'listening');
  const members = await openMemberStore(keyFileOf(config.dataFolder));
  const out = (text: string): void => void process.stdout.write(text);
  await announceStart({ config, port, keyStore, members, now: Date.now(), out });
  await members.close();

  const signal = await stopped;
  logger.info({ signal }, 'stopping: finishing what is under way');
  const deadline = setTimeout(() => {
    logger.error('requests were still under way at the deadline; they were not acknowledged');
    process.exit(1);
  }, config.shutdownMs);
  await supervisor.stop();
  clearTimeout(deadline);
  lock.release();
  logger.info('stopped');
  return 0;
}

/** A second signal means now: whatever it interrupts, nothing that was acknowledged is lost. */
function stopOnSignal(): Promise<string> {
  return new Promise((resolve) => {
    let signals = 0;
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        signals += 1;
        if (signals > 1) process.exit(1);
        resolve(signal);
      });
    }
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
