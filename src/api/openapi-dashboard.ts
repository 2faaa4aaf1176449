/**
 * The operations of the OpenAPI document that are there for the dashboard: health and the live stream, which a secret
 * key opens too, and those of members, which only the page calls. Described in short; `docs/` says more where there is
 * more to say.
 */

import type { TSchema } from 'typebox';
import { DASHBOARD_BODIES as bodies, DASHBOARD_SCHEMAS as schemas } from './dashboard-schemas.ts';
import { LIVE_PARAMETERS } from './live.ts';
import { answer, reference, shared } from './openapi-parts.ts';
import type { Operation, Parameter, PathItem, Response } from './openapi-types.ts';

export const DASHBOARD_TAG = {
  name: 'Dashboard',
  description: [
    'What the dashboard at `/dashboard` calls besides *Reading back*: the live stream and the health of the server, which a secret key opens too, and sessions, members and keys, which API keys do not open: they need the cookie of a signed-in member.',
    'A change must come from the page itself: `Origin` has to be that of the server, otherwise the answer is 403. Bodies are JSON. A session opens the calls of *Reading back* too: there the header `Sluice-Environment` says whose data is meant, and on `GET /live` the parameter `environment`.',
  ].join('\n\n'),
};

interface Described {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly hasId?: true;
  readonly body?: TSchema;
  /** No session is needed: this is how one comes to it. */
  readonly isOpen?: true;
  readonly isSlowed?: true;
  readonly mayConflict?: true;
  readonly ok: readonly [status: number, response: Response];
}

const ID: Parameter = {
  name: 'id',
  in: 'path',
  required: true,
  description: 'As the list gives it.',
  schema: { type: 'string' },
};

function operation({ hasId, body, isOpen, isSlowed, mayConflict, ok, ...words }: Described): Operation {
  return {
    ...words,
    tags: [DASHBOARD_TAG.name],
    security: isOpen === true ? [] : [{ session: [] }],
    ...(hasId === true && { parameters: [ID] }),
    ...(body !== undefined && {
      requestBody: {
        required: true,
        description: 'JSON.',
        content: { 'application/json': { schema: reference(body) } },
      },
    }),
    responses: {
      [ok[0]]: ok[1],
      ...(body !== undefined && { 400: shared('BadRequest') }),
      401: shared('Unauthorized'),
      403: shared('Forbidden'),
      ...(hasId === true && { 404: shared('NotFound') }),
      ...(mayConflict === true && { 409: shared('Conflict') }),
      ...(body !== undefined && { 413: shared('PayloadTooLarge') }),
      ...(isSlowed === true && { 429: shared('TooManyAttempts') }),
      500: shared('InternalError'),
      503: shared('Unavailable'),
    },
  };
}

function given(description: string, schema: TSchema): Response {
  return answer(description, { 'application/json': { schema: reference(schema) } });
}

const DONE = answer('Done; there is nothing to say.', {});

export function dashboardPaths(): Record<string, PathItem> {
  return {
    '/live': { get: live() },
    '/health': { get: health() },
    ...sessionPaths(),
    ...memberPaths(),
    ...keyPaths(),
  };
}

/** What a secret key opens as well. */
function ofTenant(words: Pick<Operation, 'operationId' | 'summary' | 'description'>, ok: Response): Operation {
  return {
    ...words,
    tags: [DASHBOARD_TAG.name],
    security: [{ secretKey: [] }, { session: [] }],
    responses: {
      200: ok,
      400: shared('BadRequest'),
      401: shared('Unauthorized'),
      403: shared('Forbidden'),
      500: shared('InternalError'),
      503: shared('Unavailable'),
    },
  };
}

function live(): Operation {
  const words = {
    operationId: 'live',
    summary: 'Watch events come in',
    description: [
      'Server-sent events: `event` with an event as `GET /events` gives it, within a second of its 202, in order of arrival. At most 50 a second: of a burst the newest, up to a second later; `skipped` with `{"events":n}` says how many were left out. Events of more than 1 MB are skipped too.',
      'With `Last-Event-ID`, which browsers send by themselves, it goes on where it was. It ends when the key or session does. At most 20 at once for an account and environment, and 200 in all; beyond that the answer is 503.',
    ].join('\n\n'),
  };
  const inQuery = Object.entries(LIVE_PARAMETERS).map(
    ([name, { description, schema }]): Parameter => ({ name, in: 'query', required: false, description, schema }),
  );
  const lastEventId: Parameter = {
    name: 'Last-Event-ID',
    in: 'header',
    required: false,
    description: 'The `id` of the last message that came: what followed it is sent first.',
    schema: { type: 'string' },
  };
  const stream = answer('A stream that stays open.', { 'text/event-stream': { schema: { type: 'string' } } });
  const { responses, ...rest } = ofTenant(words, stream);
  return { ...rest, parameters: [...inQuery, lastEventId], responses: { ...responses, 404: shared('NotFound') } };
}

function health(): Operation {
  const words = {
    operationId: 'health',
    summary: 'How the server is',
    description:
      'What `/readyz` and `/metrics` tell machines, for a person: with the limits, and the settings in effect. Of the whole server; nothing in it belongs to a tenant.',
  };
  return ofTenant(words, given('How it is.', schemas.Health));
}

function sessionPaths(): Record<string, PathItem> {
  const signedIn = given('Signed in; the cookie is set.', schemas.Session);
  return {
    '/session': {
      get: operation({
        operationId: 'getSession',
        summary: 'Who is signed in',
        description: 'The member of the cookie.',
        ok: [200, given('The session.', schemas.Session)],
      }),
      post: operation({
        operationId: 'signIn',
        summary: 'Sign in',
        description: 'With e-mail and password. Attempts that fail are slowed, for each e-mail and each address.',
        body: bodies.signIn,
        isOpen: true,
        isSlowed: true,
        ok: [200, signedIn],
      }),
      delete: operation({
        operationId: 'signOut',
        summary: 'Sign out',
        description: 'Ends the session and clears the cookie.',
        isOpen: true,
        ok: [204, DONE],
      }),
    },
    '/session/password': {
      post: operation({
        operationId: 'changePassword',
        summary: 'Change the password',
        description: 'All other sessions of the member end.',
        body: bodies.password,
        isSlowed: true,
        ok: [204, DONE],
      }),
    },
    '/invitations/look': {
      post: openWithLink({
        operationId: 'lookAtInvitation',
        summary: 'What a link is for',
        description: 'Of a one-time link that can still be used.',
        body: bodies.token,
        ok: [200, given('What it is for.', schemas.InvitationLook)],
      }),
    },
    '/invitations/accept': {
      post: openWithLink({
        operationId: 'acceptInvitation',
        summary: 'Use a link',
        description: 'Makes the member, or sets the new password, and signs in. Once for each link.',
        body: bodies.accept,
        ok: [200, signedIn],
      }),
    },
  };
}

function openWithLink(described: Described): Operation {
  const { responses, ...rest } = operation({ ...described, isOpen: true });
  return { ...rest, responses: { ...responses, 404: shared('NotFound') } };
}

function memberPaths(): Record<string, PathItem> {
  return {
    '/members': {
      get: operation({
        operationId: 'listMembers',
        summary: 'Who may sign in',
        description: 'The members of the account, and the invitations that are open.',
        ok: [200, given('Members.', schemas.MemberList)],
      }),
    },
    '/members/{id}': {
      delete: operation({
        operationId: 'removeMember',
        summary: 'Remove a member',
        description: 'Their sessions end. Nobody can remove themselves.',
        hasId: true,
        mayConflict: true,
        ok: [204, DONE],
      }),
    },
    '/invitations': {
      post: operation({
        operationId: 'invite',
        summary: 'Invite a person',
        description: 'Gives a link that works once, within 7 days. Nothing is mailed.',
        body: bodies.invite,
        mayConflict: true,
        ok: [201, given('The invitation.', schemas.MadeInvitation)],
      }),
    },
    '/invitations/{id}': {
      delete: operation({
        operationId: 'withdrawInvitation',
        summary: 'Withdraw an invitation',
        description: 'The link works no more.',
        hasId: true,
        ok: [204, DONE],
      }),
    },
  };
}

function keyPaths(): Record<string, PathItem> {
  return {
    '/keys': {
      get: operation({
        operationId: 'listKeys',
        summary: 'List the keys',
        description: 'Of the account, in both environments.',
        ok: [200, given('Keys.', schemas.KeyList)],
      }),
      post: operation({
        operationId: 'createKey',
        summary: 'Make a key',
        description: 'The key itself is in this answer and never again.',
        body: schemas.KeyWishes,
        ok: [201, given('The key.', schemas.MadeKey)],
      }),
    },
    '/keys/{id}/revoke': {
      post: operation({
        operationId: 'revokeKey',
        summary: 'Revoke a key',
        description: 'It is refused within two seconds, for ever.',
        hasId: true,
        body: bodies.revoke,
        ok: [200, given('The key as it is now.', schemas.Key)],
      }),
    },
    '/keys/{id}/roll': {
      post: operation({
        operationId: 'rollKey',
        summary: 'Replace a key',
        description:
          'Makes another with the same name, kind, environment and origins; the old one ends after the overlap.',
        hasId: true,
        body: bodies.roll,
        ok: [201, given('Both keys.', schemas.RolledKey)],
      }),
    },
  };
}
