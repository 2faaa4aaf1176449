#!/usr/bin/env node
/**
 * The `sluice` command. Plain JavaScript that any Node of the last years can read, because its one task is to find a
 * Node that is new enough: the running one, or the one that npm installed beside a checkout. It then runs the program:
 * the sources as they are in a checkout, the compiled ones in a published package. What is loaded from here on is
 * compiled once per machine.
 */

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { constants } from 'node:os';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';

const NODE_MAJOR_MIN = 26;

const pathOf = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const main = existsSync(pathOf('../src/main.ts')) ? '../src/main.ts' : '../dist/main.js';
const pinnedNode = ['../node_modules/.bin/node', '../node_modules/node/bin/node.exe'].map(pathOf).find(existsSync);

if (Number.parseInt(process.versions.node, 10) >= NODE_MAJOR_MIN) {
  module.enableCompileCache();
  await import(new URL(main, import.meta.url).href);
} else if (pinnedNode !== undefined) {
  runWith(pinnedNode);
} else {
  process.stderr.write(
    `sluice needs Node.js ${NODE_MAJOR_MIN} or newer; this is ${process.versions.node}. ` +
      'Get it from https://nodejs.org, or run "npm ci" in a checkout of Sluice, which brings its own.\n',
  );
  process.exitCode = 1;
}

function runWith(node) {
  // The channel tells the program when this process is gone, however it went.
  const stdio = ['inherit', 'inherit', 'inherit', 'ipc'];
  const child = spawn(node, [pathOf('sluice.js'), ...process.argv.slice(2)], { stdio });
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
    process.on(signal, () => {
      // Ctrl-C on a terminal reaches the child by itself; a second one would look like impatience.
      if (signal !== 'SIGINT' || !isatty(0)) child.kill(signal);
    });
  }
  child.on('error', (error) => {
    process.stderr.write(`sluice could not start ${node}: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.on('exit', (code, signal) => {
    process.exit(signal === null ? code : 128 + constants.signals[signal]);
  });
}
