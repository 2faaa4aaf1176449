/**
 * The shapes of what the page asks for besides a tenant's data, for the OpenAPI document. Answers are written as text,
 * not by these; a test holds each real answer against its schema.
 */

import { Type } from 'typebox';
import { ENVIRONMENTS, KEY_KINDS, ROLES } from '../model.ts';
import { count, orNull, time } from './schema-parts.ts';

const environment = Type.Union(
  ENVIRONMENTS.map((one) => Type.Literal(one)),
  { description: 'Which of the two environments.' },
);
const kind = Type.Union(
  KEY_KINDS.map((one) => Type.Literal(one)),
  { description: 'Secret keys may do everything, publishable ones may only send events.' },
);
const email = Type.String({ description: 'An e-mail address.' });
const password = (description: string) => Type.String({ minLength: 10, maxLength: 200, description });
const timeOrNull = (description: string) => orNull(Type.String({ format: 'date-time' }), description);
const name = Type.String({ minLength: 1, maxLength: 100, description: 'What a person calls the key.' });
const origins = Type.Array(Type.String(), {
  description: 'Where browsers may use a publishable key; empty: anywhere.',
});

const Health = Type.Object(
  {
    status: Type.Union([Type.Literal('ready'), Type.Literal('not ready')], { description: 'As `/readyz` says.' }),
    reasons: Type.Array(Type.String(), { description: 'Why events are refused, if they are.' }),
    warnings: Type.Array(Type.String(), {
      description:
        'What the start of this server found that an operator should know, such as a missing or old `log-ends`.',
    }),
    version: Type.String({ description: 'Of Sluice.' }),
    role: Type.Union(
      ROLES.map((one) => Type.Literal(one)),
      { description: 'What this server does of all that Sluice does.' },
    ),
    node: Type.String({ description: 'Version of Node.js.' }),
    started_at: time('When this process started.'),
    backlog_bytes: count('In the log and not yet processed.'),
    backlog_bytes_max: count('With more than this, events are refused.'),
    lag_seconds: orNull(
      Type.Number({ minimum: 0 }),
      'Age of the oldest request that is not yet processed; null on a server that processes none.',
    ),
    disk_free_bytes: orNull(
      Type.Integer({ minimum: 0 }),
      'Free where the data is kept; null on a server that keeps none on its disk.',
    ),
    disk_free_bytes_min: count('With less than this, events are refused.'),
    last_backup_at: orNull(
      Type.String({ format: 'date-time' }),
      'When the last successful `sluice backup` of the data folder began: all that was acknowledged before is in it. Null while there was none; backups by other means, such as of PostgreSQL, are not seen.',
    ),
    clock_held_seconds: Type.Number({
      minimum: 0,
      description:
        'How far the clock is ahead of `received_at`, because it jumped and is not believed; 0 while it is. Set the clock right. If it is right, restart the server, with a larger `SLUICE_CLOCK_GAP_MAX` where the difference is larger than that.',
    }),
    clock_behind_seconds: Type.Number({
      minimum: 0,
      description:
        'How far the clock is behind `received_at`, which never goes back: it goes on at half speed until the clock has caught up. If the clock is wrong, set it.',
    }),
    memory_bytes: count('Resident memory of the process.'),
    ledger_difference: orNull(
      Type.Number(),
      'What is missing in the books: anything but 0 is a bug; null on a server that processes nothing.',
    ),
    log_missing_records: orNull(
      Type.Number(),
      'Records that the store relies on and the log does not have: anything but 0 needs an operator; null on a server that processes nothing.',
    ),
    log_lost_records: orNull(
      Type.Number(),
      'Records that will never be in the store: given up by an operator, or removed from the log before this store was made; null on a server that processes nothing.',
    ),
    records_set_aside: count('Requests that could not be processed; kept, for an operator to look at.'),
    requests: Type.Array(
      Type.Object({
        status: count('Status of HTTP.'),
        requests: count('Answered with it since `started_at`.'),
      }),
      {
        description:
          'What requests under `/ingest/` were answered with, of the whole server. Those that were refused whole are nowhere else: they belong to no account.',
      },
    ),
    edges: count('Threads that take requests.'),
    settings: Type.Array(
      Type.Object({
        name: Type.String({ description: 'Name of the environment variable.' }),
        value: Type.String({ description: 'What is in effect.' }),
        default: Type.String({ description: 'What would be, if nothing was set.' }),
        source: Type.Union([Type.Literal('default'), Type.Literal('environment'), Type.Literal('flag')], {
          description: 'Where the value came from.',
        }),
        description: Type.String({ description: 'What it does.' }),
      }),
      { description: 'All settings.' },
    ),
  },
  { title: 'Health', description: 'How the server is.' },
);

const Key = Type.Object(
  {
    id: Type.String({ description: 'Names the key, and is harmless.' }),
    name,
    kind,
    environment,
    prefix: Type.String({ description: 'How the key begins.' }),
    last_four: Type.String({ description: 'Its last four characters.' }),
    origins,
    created_at: time('When it was made.'),
    expires_at: timeOrNull('When it ends by itself.'),
    revoked_at: timeOrNull('When it was revoked.'),
    last_used_at: timeOrNull('When it was last used, give or take some seconds.'),
    leak_suspected_at: timeOrNull('When a secret key was first used from a web page of another site.'),
    leak_origin: orNull(Type.String(), 'That site.'),
    state: Type.Union([Type.Literal('active'), Type.Literal('expired'), Type.Literal('revoked')], {
      description: 'Whether it works.',
    }),
    is_unused: Type.Boolean({ description: 'Active, and neither made nor used within 30 days.' }),
  },
  { title: 'Key', description: 'An API key, without what is secret of it.' },
);

const keyText = Type.String({ description: 'The key in full. It is in this answer and never again.' });

const KeyWishes = Type.Object(
  {
    name,
    kind,
    environment,
    expires_at: Type.Optional(timeOrNull('When it ends by itself.')),
    origins: Type.Optional(origins),
  },
  { title: 'KeyWishes', description: 'What a key shall be.' },
);

const Session = Type.Object(
  {
    member: Type.Object(
      { id: Type.String({ description: 'Names the member.' }), email },
      { description: 'Who it is.' },
    ),
    account: Type.Object(
      {
        id: Type.String({ description: 'Names the account.' }),
        name: Type.String({ description: 'What it is called.' }),
      },
      { description: 'Whose data it is.' },
    ),
    environments: Type.Array(environment, { description: 'Those that this server serves.' }),
    server: Type.Object(
      {
        url: Type.String({ description: 'Where it is reached.' }),
        version: Type.String({ description: 'Of Sluice.' }),
      },
      { description: 'This server.' },
    ),
  },
  { title: 'Session', description: 'Who is signed in, and to what.' },
);

const invitation = {
  id: Type.String({ description: 'Names the invitation.' }),
  email,
  expires_at: time('Until when it can be accepted.'),
};

export const DASHBOARD_SCHEMAS = {
  Health,
  Key,
  KeyList: Type.Object(
    { keys: Type.Array(Key, { description: 'Newest first.' }) },
    { title: 'KeyList', description: 'The keys of an account.' },
  ),
  KeyWishes,
  MadeKey: Type.Object({ key: keyText, row: Key }, { title: 'MadeKey', description: 'A new key.' }),
  RolledKey: Type.Object(
    { key: keyText, row: Key, old: Key },
    { title: 'RolledKey', description: 'A new key, and the one that it stands in for.' },
  ),
  Session,
  InvitationLook: Type.Object(
    {
      kind: Type.Union([Type.Literal('first'), Type.Literal('invitation'), Type.Literal('reset')], {
        description: 'For the first member of an account, for another one, or for a new password.',
      }),
      account_name: Type.String({ description: 'Of which account.' }),
      email: orNull(Type.String(), 'For whom; null when it is for whoever has the link.'),
      expires_at: time('Until when it can be accepted.'),
    },
    { title: 'InvitationLook', description: 'What an invitation is for.' },
  ),
  MemberList: Type.Object(
    {
      members: Type.Array(
        Type.Object({
          id: Type.String({ description: 'Names the member.' }),
          email,
          created_at: time('Since when.'),
          last_signed_in_at: timeOrNull('When they last signed in.'),
          is_you: Type.Boolean({ description: 'Whether it is the one who asks.' }),
        }),
        { description: 'Oldest first.' },
      ),
      invitations: Type.Array(Type.Object({ ...invitation, created_at: time('When it was made.') }), {
        description: 'Those that can still be accepted.',
      }),
    },
    { title: 'MemberList', description: 'Who may sign in to an account, and who was asked to.' },
  ),
  MadeInvitation: Type.Object(
    { ...invitation, link: Type.String({ description: 'For the person. It is in this answer and never again.' }) },
    { title: 'MadeInvitation', description: 'An invitation. Nothing is mailed.' },
  ),
};

/** Bodies that have no name of their own. */
export const DASHBOARD_BODIES = {
  signIn: Type.Object({ email, password: Type.String({ description: 'The password.' }) }),
  password: Type.Object({
    current_password: Type.String({ description: 'The one that is to be replaced.' }),
    new_password: password('The new one: 10 to 200 characters.'),
  }),
  token: Type.Object({ token: Type.String({ description: 'From the link.' }) }),
  accept: Type.Object({
    token: Type.String({ description: 'From the link.' }),
    email: Type.Optional(email),
    password: password('10 to 200 characters.'),
  }),
  invite: Type.Object({ email }),
  revoke: Type.Object({
    name: Type.String({ description: 'The name of the key, so that none is revoked by a slip.' }),
  }),
  roll: Type.Object({
    overlap_seconds: Type.Integer({
      minimum: 0,
      maximum: 2_592_000,
      description: 'How long the old key still works; never longer than it would have.',
    }),
  }),
};
