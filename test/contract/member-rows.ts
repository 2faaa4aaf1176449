/** What the suites on `MemberStore` share: what they are run with, and sessions, invitations and members to put in. */

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { KeyStore } from '../../src/keys.ts';
import type { MemberStore, NewInvitation, NewSession } from '../../src/members.ts';
import { HOUR_MS } from '../../src/model.ts';
import { newToken } from '../../src/sign-in/token.ts';

export interface OpenedMemberStore {
  readonly keyStore: KeyStore;
  /** Two accounts, which are made elsewhere. */
  readonly accounts: readonly [Account, Account];
  /** The caller closes what it gets. */
  readonly reopen: () => Promise<KeyStore>;
  /** Closes `keyStore` and removes its data. */
  readonly dispose: () => Promise<void>;
}

export interface Account {
  readonly id: string;
  readonly name: string;
}

export type WithStore = (
  work: (opened: OpenedMemberStore & { readonly store: MemberStore }, context: TestContext) => Promise<void>,
) => (context: TestContext) => Promise<void>;

export const NOON = Date.UTC(2026, 10, 15, 12);

export function session(createdAt: number): NewSession {
  return { tokenHash: newToken().tokenHash, createdAt, expiresAt: createdAt + HOUR_MS, replaces: null };
}

let made = 0;

export function invitation(account: Account, options: Partial<NewInvitation>): NewInvitation {
  const createdAt = options.createdAt ?? NOON;
  return {
    id: `inv_${++made}`,
    tokenHash: newToken().tokenHash,
    accountId: account.id,
    kind: 'invitation',
    email: null,
    memberId: null,
    createdAt,
    expiresAt: createdAt + 24 * HOUR_MS,
    ...options,
  };
}

export function acceptance(
  { tokenHash }: NewInvitation,
  { email, passwordHash = 'hash', at = NOON }: { email: string; passwordHash?: string; at?: number },
) {
  return { tokenHash, memberId: `mem_${++made}`, email, passwordHash, session: session(at), at };
}

/** Makes a member by an invitation, as there is no other way. */
export async function join(
  store: MemberStore,
  account: Account,
  options: { email: string; claimed?: string; passwordHash?: string; at?: number },
) {
  const { email, claimed = email, passwordHash = 'hash', at = NOON } = options;
  const invited = invitation(account, { email });
  await store.createInvitation(invited, 1_000);
  const accepted = acceptance(invited, { email: claimed, passwordHash, at });
  const member = await store.acceptInvitation(accepted);
  assert.ok(typeof member === 'object', JSON.stringify(member));
  return { ...member, session: accepted.session };
}
