/**
 * A process that waits for a message, then opens the given key file and writes keys as fast as it can.
 */

import { once } from 'node:events';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';

const [file = '', count = '0'] = process.argv.slice(2);
process.send?.('ready');
await once(process, 'message');

const now = Date.now();
const store = openSqliteKeyStore(file);
const account = await store.ensureAccount(newAccount('shared', now));
for (let i = 0; i < Number(count); i++) {
  await createKey(store, {
    accountId: account.id,
    name: `key ${i}`,
    kind: 'secret',
    environment: 'development',
    origins: [],
    expiresAt: null,
    now,
  });
}
await store.close();
process.disconnect?.();
