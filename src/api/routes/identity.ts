/**
 * `GET /profiles/{id}/identity`: why a profile is one person, and `POST /profiles/{id}/unmerge`, which undoes a merge.
 * With two identifiers the identity has the chain between them: each step is one user of one request, with a sentence
 * for people. The chain is found by `identity/explain.ts`; it is the only one there is (rule 15).
 */

import type { FastifyInstance } from 'fastify';
import { chainBetween } from '../../identity/explain.ts';
import type { MatchOptions } from '../../identity/match-keys.ts';
import { IDENTIFIER_TYPES, LIMITS, type NormalisedKey, REFUSAL_REASONS, type RefusalReason } from '../../model.ts';
import type { IdentifierLink, StoredIdentity, StoredMerge } from '../../store.ts';
import { uuidOf } from '../../views/uuid.ts';
import * as examples from '../examples.ts';
import { membersOf, textParameter } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, RefusedError, rowJson, timeText } from '../responses.ts';
import { identifierType, list, object, oneOf, requestBody, text, time, Type, userIndex, uuid } from '../schema.ts';
import { type Call, tenantRoute } from '../route-kinds.ts';
import { PROFILE_PARAMS, valueToMatch } from './profiles.ts';

const via = Type.Object(
  { type: identifierType, value: text('As the client wrote it.') },
  { description: 'The identifier that led from one to the other.' },
);

const joinedNodes = Type.Unsafe<readonly [string, string]>({
  type: 'array',
  prefixItems: [
    { type: 'string', format: 'uuid' },
    { type: 'string', format: 'uuid' },
  ],
  items: { type: 'string', format: 'uuid' },
  minItems: 2,
  maxItems: 2,
  description: 'Of a merge: the node that `via` belongs to, then the node it was joined with.',
});

const ChainStep = object('ChainStep', 'One step of the chain from one identifier to another.', {
  kind: oneOf(
    ['link', 'merge'],
    '`link`: an identifier was seen for the first time. `merge`: two profiles became one.',
  ),
  type: Type.Optional(identifierType),
  value: Type.Optional(text('Of a link: the identifier.')),
  node: Type.Optional(uuid('Of a link: where the identifier belongs.')),
  from: Type.Optional(uuid('Of a merge: the merged profile.')),
  into: Type.Optional(uuid('Of a merge: the surviving profile.')),
  via: Type.Optional(via),
  nodes: Type.Optional(joinedNodes),
  trace_id: uuid('The request that did it.'),
  userIndex,
  at: time('When the server received it.'),
  text: text('The step as a sentence.'),
});

const LinkedIdentifier = object('LinkedIdentifier', 'An identifier, and the request that introduced it.', {
  type: identifierType,
  value: text('As the client first wrote it.'),
  node: uuid('Where it belongs, permanently: see `nodes` of the merges.'),
  first_trace_id: uuid('The first request with it.'),
  userIndex,
  first_seen: time('When the server received that request.'),
});

const Merge = object('Merge', 'A merge, and its cause.', {
  from: uuid('The merged profile.'),
  into: uuid('The surviving profile.'),
  via,
  nodes: joinedNodes,
  trace_id: uuid('The request that caused it. Send it to unmerge.'),
  userIndex,
  at: time('When the server received it.'),
});

const Refusal = object('Refusal', 'A link that was refused.', {
  type: identifierType,
  value: text('The identifier that was not linked.'),
  reason: oneOf(
    Object.keys(REFUSAL_REASONS) as RefusalReason[],
    Object.entries(REFUSAL_REASONS)
      .map(([code, words]) => `\`${code}\`: ${words}`)
      .join('; '),
  ),
  trace_id: uuid('The first request that was refused for this reason.'),
  userIndex,
  at: time('When the server received it.'),
  count: Type.Integer({ minimum: 1, description: 'How often it happened.' }),
});

const Identity = object('Identity', 'Why this is one person.', {
  identifiers: list(LinkedIdentifier, 'Every identifier, and where it came from.'),
  merges: list(Merge, 'Every merge, and its cause.'),
  refusals: list(Refusal, 'What was not linked or merged when a user went to this profile, and why not.'),
  chain: Type.Optional(
    Type.Array(ChainStep, { minItems: 1, description: 'With `from` and `to`: the chain from one to the other.' }),
  ),
});

const UnmergeRequest = requestBody(
  'UnmergeRequest',
  'The request whose merges to undo, from `merges` of the identity.',
  { trace_id: uuid('The request whose merges are to be undone.') },
  { unmerge: ['Undo what one request merged', { trace_id: examples.TRACE_ID }] },
);

const Unmerged = object('Unmerged', 'The result of an unmerge.', {
  trace_id: uuid('The id of this unmerge, as in the audit log.'),
  undone: Type.Integer({ minimum: 1, description: 'Merges that were undone.' }),
  profile_ids: list(Type.String({ format: 'uuid' }), 'The resulting profiles, oldest first.'),
});

const TYPED_IDENTIFIER = /^([^:]*):([^]+)$/;
const TYPED_IDENTIFIER_CHARACTERS_MAX = 'phone_number:'.length + LIMITS.identifierCharactersMax;

const IDENTITY_PARAMETERS = {
  from: textParameter(
    'With `to`: adds `chain`, which explains why the two are one person. A type, a colon and a value, such as `email:ada@example.com`.',
    TYPED_IDENTIFIER_CHARACTERS_MAX,
  ),
  to: textParameter('The other end of the chain, such as `anon_id:anon-7f3c`.', TYPED_IDENTIFIER_CHARACTERS_MAX),
};

const ANON_LINK: IdentifierLink = {
  type: 'anon_id',
  value: 'anon-7f3c',
  normalised: 'anon-7f3c',
  nodeId: examples.PROFILE_ID,
  traceId: examples.ANON_TRACE_ID,
  userIndex: 0,
  at: Date.parse(examples.ANON_AT),
};
const USER_LINK: IdentifierLink = {
  ...ANON_LINK,
  type: 'user_id',
  value: 'u-1042',
  nodeId: examples.MERGED_ID,
  traceId: examples.TRACE_ID,
  at: Date.parse(examples.AT),
};
const MERGE: StoredMerge = {
  from: examples.MERGED_ID,
  into: examples.PROFILE_ID,
  via: { type: 'anon_id', value: 'anon-7f3c' },
  nodes: [examples.PROFILE_ID, examples.MERGED_ID],
  traceId: examples.LOGIN_TRACE_ID,
  userIndex: 0,
  at: Date.parse(examples.LOGIN_AT),
};
const IDENTITY: StoredIdentity = {
  id: examples.PROFILE_ID,
  identifiers: [ANON_LINK, USER_LINK, { ...USER_LINK, type: 'email', value: 'ada@example.com' }],
  merges: [MERGE],
  refusals: [],
};
const CHAIN = [linkStep(ANON_LINK), mergeStep(MERGE), linkStep(USER_LINK)];

export function registerIdentityRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /profiles/:id/identity', {
    operationId: 'profileIdentity',
    summary: 'Why this is one person',
    description:
      'Every identifier with the request that introduced it, every merge with its cause, and every link that was refused, with the reason. With `from` and `to`, also the chain of requests that makes these two identifiers one person; 404 if one of them does not belong to this profile, and `message` says which. A refusal is listed on the profile that received the user, not on the profile that owns the identifier.',
    params: PROFILE_PARAMS,
    query: IDENTITY_PARAMETERS,
    response: {
      description: 'The causes.',
      body: Identity,
      examples: {
        identity: ['Everything that made this one person', identityJson(IDENTITY)],
        chain: ['Why an anonymous visitor is a customer', identityJson(IDENTITY, CHAIN)],
      },
    },
    handler: (call) => explainProfile(call, parts.matchOptions),
  });

  tenantRoute(app, parts, 'POST /profiles/:id/unmerge', {
    operationId: 'unmergeProfile',
    summary: 'Undo a merge',
    description:
      'Undoes the merges that one request caused in this profile: each side gets back its properties, events and identifiers. Later requests do not merge the same profiles again. 400 if that request merged nothing here. The audit log records it under the `trace_id` of this response.',
    params: PROFILE_PARAMS,
    body: UnmergeRequest,
    response: {
      description: 'Undone.',
      body: Unmerged,
      examples: {
        unmerged: [
          'Undone',
          { trace_id: examples.UNMERGE_TRACE_ID, undone: 1, profile_ids: [examples.PROFILE_ID, examples.MERGED_ID] },
        ],
      },
    },
    handler: async ({ store, tenantId, id, body, traceId, now, by }) => {
      const mergedBy = uuidOf(membersOf(body, ['trace_id']).trace_id);
      if (mergedBy === undefined) {
        throw new BadParameterError('trace_id must be the trace_id of the request that merged');
      }
      const result = await store.unmerge(tenantId, id, mergedBy, { traceId, at: now, by });
      if (result === undefined) return undefined;
      if (result.undone === 0) throw new BadParameterError(`request ${mergedBy} merged nothing in this profile`);
      return { trace_id: traceId, undone: result.undone, profile_ids: result.profileIds };
    },
  });
}

async function explainProfile(
  { store, tenantId, id, parameters }: Call<typeof IDENTITY_PARAMETERS>,
  options: MatchOptions,
) {
  const { from, to } = parameters;
  if ((from === null) !== (to === null)) throw new BadParameterError('from and to must be used together');
  const ends =
    from === null || to === null
      ? null
      : ([await askedIdentifier('from', from, options), await askedIdentifier('to', to, options)] as const);
  const identity = await store.identity(tenantId, id);
  if (identity === undefined) return undefined;
  if (ends === null) return identityJson(identity);
  requireOwnIdentifiers(identity, ends[0], ends[1]);
  const chain = chainOf(identity, ...ends);
  return chain && identityJson(identity, chain);
}

/** The command line prints the same. */
export function identityJson(identity: StoredIdentity, chain?: ReturnType<typeof chainOf>) {
  const identifiers = identity.identifiers.map((link) => {
    return { ...link, node: link.nodeId, firstTraceId: link.traceId, firstSeen: link.at };
  });
  return rowJson(Identity, { ...identity, identifiers, chain });
}

async function askedIdentifier(name: string, given: string, options: MatchOptions): Promise<NormalisedKey> {
  const [, typeText, value] = TYPED_IDENTIFIER.exec(given) ?? [];
  const type = IDENTIFIER_TYPES.find((one) => one === typeText);
  if (type === undefined || value === undefined) {
    const types = IDENTIFIER_TYPES.join(', ');
    throw new BadParameterError(
      `${name} must be a type (${types}), a colon and a value, such as email:ada@example.com`,
    );
  }
  return { type, value: await valueToMatch(type, value, options) };
}

function requireOwnIdentifiers({ identifiers }: StoredIdentity, from: NormalisedKey, to: NormalisedKey): void {
  const isStranger = ({ type, value }: NormalisedKey): boolean =>
    !identifiers.some((link) => link.type === type && link.normalised === value);
  const names = Object.entries({ from, to }).flatMap(([name, asked]) => (isStranger(asked) ? [name] : []));
  if (names.length === 1) throw new RefusedError('not_found', `${names[0]} is not an identifier of this profile`);
  if (names.length === 2) throw new RefusedError('not_found', 'from and to are not identifiers of this profile');
}

function chainOf(identity: StoredIdentity, from: NormalisedKey, to: NormalisedKey) {
  const links = identity.identifiers.map((link) => {
    return { link, key: { type: link.type, value: link.normalised }, node: link.nodeId };
  });
  const chain = chainBetween(from, to, links, identity.merges);
  if (chain === undefined) return undefined;
  const first = linkStep(chain.from.link);
  return chain.from === chain.to ? [first] : [first, ...chain.merges.map(mergeStep), linkStep(chain.to.link)];
}

function linkStep(link: IdentifierLink) {
  const { type, value, nodeId, traceId, userIndex, at } = link;
  return {
    ...link,
    kind: 'link' as const,
    node: nodeId,
    text: `${type} ${value} was first seen at ${timeText(at)} in users[${userIndex}] of request ${traceId}, and belongs to profile ${nodeId}.`,
  };
}

function mergeStep(merge: StoredMerge) {
  const { from, into, nodes, via, traceId, userIndex, at } = merge;
  const [reached, joined] = nodes;
  return {
    ...merge,
    kind: 'merge' as const,
    text: `At ${timeText(at)}, users[${userIndex}] of request ${traceId} had both ${via.type} ${via.value} of profile ${reached} and an identifier of profile ${joined}, so ${from} was merged into ${into}.`,
  };
}
