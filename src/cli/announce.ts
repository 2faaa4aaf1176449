/**
 * The words at start. The first start on a data folder makes an account and one development key, and prints the key and
 * a curl line that works when pasted: once, on stdout, never in the log. Later starts print only where the server is.
 */

import { baseUrlOf } from '../base-url.ts';
import type { Config } from '../config.ts';
import { createKey, newAccount } from '../keys/create.ts';
import type { KeyStore } from '../store.ts';
import { curlLine } from './curl.ts';
import { DEFAULT_ACCOUNT_NAME } from './keys-create.ts';

export interface Start {
  readonly config: Config;
  readonly port: number;
  readonly keyStore: KeyStore;
  readonly now: number;
  readonly out: (text: string) => void;
}

export async function announceStart({ config, port, keyStore, now, out }: Start): Promise<void> {
  const baseUrl = baseUrlOf(config.host, port);
  out(`\n  Sluice is listening on ${baseUrl}   docs: ${baseUrl}/docs\n`);
  const accounts = await keyStore.accounts();
  if (accounts.length > 0) {
    out('\n');
    return;
  }
  if (config.environment === 'production') {
    out('\n  There is no key yet. Make one:  npx sluice keys create --name NAME --kind secret --env production\n\n');
    return;
  }
  const account = await keyStore.ensureAccount(newAccount(DEFAULT_ACCOUNT_NAME, now));
  const { key } = await createKey(keyStore, {
    accountId: account.id,
    name: 'first development key',
    kind: 'secret',
    environment: 'development',
    origins: [],
    expiresAt: null,
    now,
  });
  out(`
  Your first key, for development. It is shown this once; keep it somewhere safe:

    ${key}

  Send a first event (paste this into another terminal):

${curlLine(baseUrl, key)}

  More keys: npx sluice keys create --help

`);
}
