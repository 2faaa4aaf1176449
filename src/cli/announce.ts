/**
 * The start message. The first start on a data folder or a database creates an account and a development key, and
 * prints a link to the dashboard, the key, and a curl command to paste: once, on stdout, never in the log. Later starts
 * print only the address, and how to sign in while there is no member. If several servers start at once on an empty
 * database, the one that creates the account prints the link and the key. Servers without the dashboard create nothing.
 */

import { baseUrlOf } from '../config/base-url.ts';
import type { Config } from '../config/config.ts';
import { createKey, newAccount } from '../keys/manage.ts';
import { invitationLink, invite } from '../sign-in/invite.ts';
import type { Account, KeyStore } from '../keys.ts';
import { curlLine } from './curl.ts';
import { DEFAULT_ACCOUNT_NAME } from './keys.ts';

interface Start {
  readonly config: Config;
  readonly port: number;
  readonly keyStore: KeyStore;
  readonly now: number;
  readonly out: (text: string) => void;
}

export async function announceStart(start: Start): Promise<void> {
  const { config, port, keyStore, now, out } = start;
  const baseUrl = baseUrlOf(config.host, port);
  const role = config.role === 'all' ? '' : `, with the role ${config.role}`;
  out(`\n  Sluice is listening on ${baseUrl}${role}   docs: ${baseUrl}/docs\n`);
  const accounts = await keyStore.accounts();
  if (accounts.length > 0) {
    const hint = (await hasMember(keyStore, accounts))
      ? ''
      : '\n  No one can sign in yet. Get a link:  npx sluice invite\n';
    out(`${hint}\n`);
    return;
  }
  const wanted = newAccount(DEFAULT_ACCOUNT_NAME, now);
  const account = await keyStore.ensureAccount(wanted);
  // Another server was faster and has printed it.
  if (account.id !== wanted.id) {
    out('\n  Another server has just created the first account, and printed a link and a key.\n\n');
    return;
  }
  const forFirst = { accountId: account.id, kind: 'first', email: null, member: null } as const;
  const invitation = await invite(keyStore.members, forFirst, now);
  if (invitation === undefined) throw new Error('a new account has open invitations');
  const rest = config.environment === 'production' ? NO_KEY : await firstKey(start, account, baseUrl);
  out(`
  Dashboard: ${invitationLink(config.publicUrl || baseUrl, invitation.token)}

  Open it to choose an e-mail address and a password. The link works once, for 24 hours.
${rest}`);
}

const NO_KEY = `
  There is no key yet. Create one in the dashboard, or here:

    npx sluice keys create --name NAME --kind secret --env production

`;

/** For a server that makes no account: of a role without sign-in, or before its database is there. */
export function announceAddress({ config, port, out }: Pick<Start, 'config' | 'port' | 'out'>, more: string): void {
  out(`\n  Sluice is listening on ${baseUrlOf(config.host, port)}, ${more}\n\n`);
}

async function firstKey({ config, keyStore, now }: Start, account: Account, baseUrl: string): Promise<string> {
  const { key } = await createKey(keyStore, {
    accountId: account.id,
    name: 'first development key',
    kind: 'secret',
    environment: 'development',
    origins: [],
    expiresAt: null,
    now,
  });
  const example =
    config.role === 'all'
      ? `  Send a first event (paste this into another terminal):\n\n${curlLine(baseUrl, key)}`
      : '  Send events with it to a server with the role edge.';
  return `
  Your first key, for development. Shown only once; keep it somewhere safe:

    ${key}

${example}

  More keys: npx sluice keys create --help

`;
}

async function hasMember({ members }: KeyStore, accounts: readonly Account[]): Promise<boolean> {
  for (const { id } of accounts) if ((await members.members(id)).length > 0) return true;
  return false;
}
