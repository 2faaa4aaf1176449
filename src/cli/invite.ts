/**
 * `sluice invite`: a one-time link to the dashboard, made while a server runs or without one. For an e-mail that is a
 * member already it is a link to a new password, and says so. The link is printed this once; what is kept is its hash.
 * Anyone who may write to the data folder, or the database, may invite people, so nothing else is asked.
 */

import type { Config } from '../config/config.ts';
import { OperatorError } from '../errors.ts';
import { nameMistake } from '../keys/manage.ts';
import type { InvitationKind, Member, MemberStore } from '../members.ts';
import { DAY_MS, HOUR_MS } from '../model.ts';
import {
  emailMistake,
  INVITATION_MS,
  invitationLink,
  invite,
  OPEN_INVITATIONS_MAX,
  otherAccountMistake,
} from '../sign-in/invite.ts';
import type { Account, KeyStore } from '../keys.ts';
import { readArguments } from './arguments.ts';
import { chooseAccount } from './keys.ts';
import { locationName, readSettings, serverUrlOf } from './location.ts';
import { type Shell, withKeyStore } from './shell.ts';
import { bold, indented } from './table.ts';

type Made = Awaited<ReturnType<typeof makeInvitation>>;

export async function runInvite(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('invite', args);
  const { mistakes } = flags;
  const config = readSettings(flags, shell.env);
  const accountName = flags.values.get('account');
  const email = flags.values.get('email')?.trim();
  // It begins with the name of the field, which is that of the flag.
  const emailProblem = email === undefined ? undefined : emailMistake(email);
  mistakes.push(
    ...flags.positionals.map((word) => `unexpected argument "${word}"; an e-mail is given as --email ${word}`),
    ...(accountName === undefined ? [] : [nameMistake('account name', accountName) ?? []].flat()),
    ...(emailProblem === undefined ? [] : [`--${emailProblem}`]),
  );
  if (mistakes.length > 0) throw flags.error();

  const made = await withKeyStore(config, shell.openKeyStore, (keyStore) =>
    makeInvitation(keyStore, config, { accountName, email: email ?? null, now: shell.now() }),
  );
  shell.out(flags.isJson ? jsonText(made) : announce(made, config, bold(made.link)));
  return 0;
}

async function makeInvitation(
  keyStore: KeyStore,
  config: Config,
  { accountName, email, now }: { accountName: string | undefined; email: string | null; now: number },
) {
  const { members } = keyStore;
  const known = email === null ? undefined : await members.findMember(email);
  const mistake = known && accountName !== undefined ? otherAccountMistake(known, accountName.trim()) : undefined;
  if (mistake !== undefined) {
    throw new OperatorError(
      `--${mistake}. Leave --account out for a new password in account "${known?.accountName}", or choose another e-mail.`,
    );
  }
  const { account, isNew } = await chooseAccount(keyStore, known?.accountName ?? accountName, now);
  const kind = await kindFor(members, account, known);
  const option = { accountId: account.id, kind, email: known?.email ?? email, member: known ?? null };
  const made = await invite(members, option, now);
  if (made === undefined) {
    throw new OperatorError(
      `Account "${account.name}" has ${OPEN_INVITATIONS_MAX} open invitations. Withdraw some in the dashboard, under Settings, Team.`,
    );
  }
  const link = invitationLink(serverUrlOf(config), made.token);
  return { kind, account, isNewAccount: isNew, email: option.email, link, expiresAt: made.expiresAt };
}

async function kindFor(members: MemberStore, account: Account, known: Member | undefined): Promise<InvitationKind> {
  if (known !== undefined) return 'reset';
  return (await members.members(account.id)).length === 0 ? 'first' : 'invitation';
}

function announce({ kind, account, isNewAccount, email }: Made, config: Config, link: string): string {
  const made = isNewAccount ? `Created the account "${account.name}".\n` : '';
  const who = email ?? 'the first person who opens it';
  const what =
    kind === 'reset'
      ? `${who} is a member of account "${account.name}" already. This link sets a new password, which ends all their sessions:`
      : `A link for ${who}, to join account "${account.name}" in the dashboard:`;
  return `${made}${what}

  ${link}

It works once, for ${lastingText(INVITATION_MS[kind])}, and is shown only once. Sluice sends no e-mail: pass it on yourself.
${whereItIs(config)}
`;
}

function whereItIs(config: Config): string {
  return config.storeUrl !== ''
    ? `It is for the servers on ${locationName(config)}.`
    : `It is for the server on the data folder ${config.dataFolder}.`;
}

function lastingText(milliseconds: number): string {
  return milliseconds > DAY_MS ? `${milliseconds / DAY_MS} days` : `${milliseconds / HOUR_MS} hours`;
}

function jsonText({ kind, account, email, link, expiresAt }: Made): string {
  const { id, name } = account;
  const shown = { kind, account: { id, name }, email, link, expires_at: new Date(expiresAt).toISOString() };
  return indented(shown);
}
