/**
 * A process of its own that processes the log of a data folder and kills itself, as kill -9 would, when it passes a
 * failpoint for the n-th time. Without a failpoint it continues until the log is used up and ends with code 0.
 * Arguments: the data folder, the name of a failpoint or `none`, n.
 */

import { enableCompileCache } from 'node:module';

// What is loaded from here on is compiled once for all of these processes.
enableCompileCache();

const [dataFolder = '', failpointName = 'none', pass = '1'] = process.argv.slice(2);
const { KILLED_PROCESSING, processAll } = await import('./processing.ts');

let passes = 0;
await processAll(dataFolder, {
  ...KILLED_PROCESSING,
  failpoint: (name) => {
    if (name !== failpointName) return;
    passes += 1;
    if (passes === Number(pass)) process.kill(process.pid, 'SIGKILL');
  },
});
