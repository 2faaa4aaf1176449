/**
 * A program that runs `sluice tail --since 2h` with the shell of its process; tests close its pipe and send it signals.
 */

import { shellOf } from '../../src/cli/shell.ts';
import { runTail } from '../../src/cli/tail.ts';
import * as stores from '../../src/wiring/opening.ts';

const shell = shellOf({ SLUICE_DATA: process.argv[2] }, stores);
process.exitCode = await runTail(['--since', '2h', '--json'], shell);
