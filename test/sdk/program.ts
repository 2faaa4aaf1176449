/** A program with the SDK, for the tests of how it ends: arguments are the address, a key and what to do. */

import { Sluice } from '../../sdk/src/server.ts';

const [, , url = '', key = '', what = ''] = process.argv;
const flushOnExit = what.startsWith('on exit') && { timeoutMs: /in vain|in flight/.test(what) ? 300 : 20_000 };
const sluice = new Sluice({ url, key, retryDelayMs: 20, flushOnExit });
sluice.on('dropped', ({ events }) => console.log(`dropped ${events}`));
for (let n = 0; n < 3; n++) sluice.user({ user_id: 'ada' }).track(what, { n });
if (what === 'flushed') {
  console.log(JSON.stringify(await sluice.flush({ timeoutMs: 20_000 })));
} else if (what === 'on exit by signal') {
  // A program with work of its own.
  setInterval(() => undefined, 60_000);
  console.log('ready');
}
