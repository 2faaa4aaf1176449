/**
 * The app with real keys and members, a canned store and a clock that tests set, and short ways to ask it as a browser
 * would: with a cookie and from the server's own page. Members are made without their slow passwords unless one is asked
 * for.
 */

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { KeyCache } from '../../src/keys/cache.ts';
import { newAccount } from '../../src/keys/manage.ts';
import type { Member, MemberStore } from '../../src/members.ts';
import { invite } from '../../src/sign-in/invite.ts';
import { Passwords } from '../../src/sign-in/password.ts';
import { newSession } from '../../src/sign-in/session.ts';
import { tokenHashOf } from '../../src/sign-in/token.ts';
import type { KeyStore } from '../../src/keys.ts';
import { temporaryKeyStore } from '../keys/temporary-store.ts';
import { loadConfig } from '../../src/config/config.ts';
import { type Asked, cannedStore } from './canned-store.ts';
import { type HttpResponse, startApp, type StartOptions } from './running-app.ts';

export const NOW = Date.UTC(2026, 10, 15, 12);
export const PASSWORD = 'correct horse battery';
/** A server that is called by a proxy on its own machine. */
export const BEHIND_PROXY = loadConfig({ env: { SLUICE_TRUSTED_PROXIES: 'loopback' }, args: [] });

export interface BrowserOptions {
  readonly cookie?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  /** Instead of JSON. */
  readonly text?: string;
  /** Null for none; the server's own page if left out. */
  readonly origin?: string | null;
}

export type BrowserResponse = HttpResponse & { readonly body: unknown; readonly cookie: string | undefined };

export interface TestMember {
  readonly member: Member;
  /** `sluice_session=…` */
  readonly cookie: string;
}

export interface MemberApp {
  readonly app: FastifyInstance;
  readonly errors: readonly unknown[];
  readonly members: MemberStore;
  readonly keyStore: KeyStore;
  readonly asked: Asked[];
  readonly clock: { now: number };
  readonly origin: string;
  readonly accountId: (account?: string) => Promise<string>;
  /** A member of the account with a session; with a real password only if asked for. */
  readonly join: (email: string, options?: { account?: string; password?: string }) => Promise<TestMember>;
  /** The token of an invitation. */
  readonly invitationFor: (options?: {
    account?: string;
    email?: string;
    kind?: 'first' | 'invitation';
  }) => Promise<string>;
  readonly ask: (method: string, path: string, options?: BrowserOptions) => Promise<BrowserResponse>;
}

export async function startMemberApp(context: TestContext, options: StartOptions = {}): Promise<MemberApp> {
  const { store: keyStore } = await temporaryKeyStore(context);
  const { members } = options.keyStore ?? keyStore;
  const clock = { now: NOW };
  const accountId = async (account = 'own'): Promise<string> =>
    (await keyStore.ensureAccount(newAccount(account, NOW))).id;
  const { store, asked } = cannedStore(`${await accountId()}/development`);
  const { app, port, call, errors } = await startApp(context, {
    store,
    keys: new KeyCache(keyStore),
    keyStore,
    now: () => clock.now,
    ...options,
  });
  const origin = `http://127.0.0.1:${port}`;

  const ask = async (method: string, path: string, given: BrowserOptions = {}): Promise<BrowserResponse> => {
    const body = given.text ?? (given.json === undefined ? undefined : JSON.stringify(given.json));
    const from = given.origin === undefined ? origin : given.origin;
    const response = await call(method, path, {
      headers: {
        ...(given.json === undefined ? {} : { 'content-type': 'application/json' }),
        ...(typeof given.cookie === 'string' ? { cookie: given.cookie } : {}),
        ...(from === null ? {} : { origin: from }),
        ...given.headers,
      },
      ...(body === undefined ? {} : { body }),
    });
    return {
      ...response,
      body: response.text === '' ? undefined : JSON.parse(response.text),
      cookie: cookieOf(response),
    };
  };

  const invitationFor: MemberApp['invitationFor'] = async ({ account, email = null, kind = 'invitation' } = {}) => {
    const options = { accountId: await accountId(account), kind, email, member: null };
    const made = await invite(members, options, clock.now);
    assert.ok(made);
    return made.token;
  };

  let joined = 0;
  const join: MemberApp['join'] = async (email, { account, password } = {}) => {
    const tokenHash = tokenHashOf(await invitationFor({ account: account ?? 'own', email }));
    assert.ok(tokenHash);
    const { token, session } = newSession({ address: '', token: undefined }, clock.now);
    const member = await members.acceptInvitation({
      tokenHash,
      memberId: `mem_${++joined}`,
      email,
      passwordHash: password === undefined ? 'none' : await new Passwords().hash(password),
      session,
      at: clock.now,
    });
    assert.ok(typeof member === 'object');
    return { member, cookie: `sluice_session=${token}` };
  };
  return { app, errors, members, keyStore, asked, clock, origin, accountId, join, invitationFor, ask };
}

/** `sluice_session=…` as a browser would send it back; undefined when none was set. */
function cookieOf({ headers }: HttpResponse): string | undefined {
  return headers['set-cookie']?.[0]?.split(';')[0];
}
