/**
 * The shapes of profiles, of why a profile is one person, and of the two acts that take something back, for the OpenAPI
 * document. Answers are written by `stored-answers.ts`; a test holds each real answer against its schema.
 */

import { Type } from 'typebox';
import { REFUSAL_REASONS } from '../model.ts';
import { MATCHED_BY } from '../store.ts';
import {
  anyObject,
  asWritten,
  count,
  identifierType,
  nextCursor,
  orNull,
  profileId,
  time,
  traceId,
  userIndex,
} from './schema-parts.ts';

export const Told = Type.Object(
  {
    value: Type.Unknown({ description: 'The value, as on the profile.' }),
    trace_id: traceId('The request that told it.'),
    received_at: time('When that came in.'),
  },
  { title: 'Told', description: 'Where a value comes from.' },
);

const told = (description: string) => Type.Object({}, { description, additionalProperties: Told });

export const Profile = Type.Object(
  {
    id: profileId('Names the profile. Stays the same while others are merged into it.'),
    merged_ids: Type.Array(Type.String({ format: 'uuid' }), {
      description: 'Ids of what was merged into it. They go on to stand for this profile.',
    }),
    identifiers: Type.Object(
      { user_id: asWritten, email: asWritten, phone_number: asWritten, anon_id: asWritten },
      { description: 'What the person is known by.' },
    ),
    profile_fields: Type.Object(
      {},
      { description: 'Profile fields, the newest of each.', additionalProperties: Type.String() },
    ),
    user_properties: anyObject(
      'Attributes, the newest of each. Numbers keep their value, however many digits they have.',
    ),
    first_seen: time('When the first request about the person came in.'),
    last_seen: time('When the latest request about the person came in.'),
    event_count: count('Events of this profile.'),
    provenance: Type.Optional(
      Type.Object(
        { profile_fields: told('By name.'), user_properties: told('By name.') },
        { description: 'With `provenance=1`: which request told each value.' },
      ),
    ),
  },
  { title: 'Profile', description: 'One person, as far as is known.' },
);

export const ProfileCount = Type.Object(
  { profiles: count('Profiles there are now.') },
  { title: 'ProfileCount', description: 'How many people there are.' },
);

export const ProfileMatches = Type.Object(
  {
    profiles: Type.Array(
      Type.Object({
        matched: Type.Array(Type.Union(MATCHED_BY.map((by) => Type.Literal(by))), {
          description:
            'What begins with the value: types of identifiers, or `name`; `id` where it is the id of the profile. Empty without a value.',
        }),
        profile: Profile,
        last_event_at: Type.Optional(
          orNull(Type.String({ format: 'date-time' }), 'With `include=last_event`: when its newest event happened.'),
        ),
      }),
      { description: 'Those that the whole value belongs to, then the others, newest first. Each profile once.' },
    ),
    next_cursor: nextCursor,
    is_partial: Type.Boolean({
      description:
        'Whether the page ended before its limit because the search took too long: it has not looked at everyone yet, and `next_cursor` goes on.',
    }),
  },
  { title: 'ProfileMatches', description: 'People that were found.' },
);

export const Person = orNull(
  Type.Object(
    {
      id: profileId('The profile as it is now.'),
      name: orNull(
        Type.String(),
        '`first_name` and `last_name` of its profile fields, else `name` or `full_name`; null without any.',
      ),
      identifiers: Type.Object(
        { user_id: asWritten, email: asWritten, phone_number: asWritten, anon_id: asWritten },
        { description: 'The oldest three of each type.' },
      ),
    },
    { title: 'Person', description: 'What to call a person.' },
  ),
  'With `include=person`: what to call the person; null where there is none.',
);

const via = Type.Object(
  { type: identifierType, value: Type.String({ description: 'As the client wrote it.' }) },
  { description: 'The identifier that led from one to the other.' },
);

const joinedNodes = Type.Array(Type.String({ format: 'uuid' }), {
  minItems: 2,
  maxItems: 2,
  description: 'Of a merge: where `via` belongs, and what it was joined to.',
});

export const ChainStep = Type.Object(
  {
    kind: Type.Union([Type.Literal('link'), Type.Literal('merge')], {
      description: '`link`: an identifier was seen for the first time. `merge`: two became one.',
    }),
    type: Type.Optional(identifierType),
    value: Type.Optional(Type.String({ description: 'Of a link: the identifier.' })),
    node: Type.Optional(Type.String({ format: 'uuid', description: 'Of a link: where the identifier belongs.' })),
    from: Type.Optional(Type.String({ format: 'uuid', description: 'Of a merge: what was merged away.' })),
    into: Type.Optional(Type.String({ format: 'uuid', description: 'Of a merge: what lived on.' })),
    via: Type.Optional(via),
    nodes: Type.Optional(joinedNodes),
    trace_id: traceId('The request that did it.'),
    userIndex,
    at: time('When that came in.'),
    text: Type.String({ description: 'The step as a sentence.' }),
  },
  { title: 'ChainStep', description: 'One step of the way from one identifier to another.' },
);

export const Identity = Type.Object(
  {
    identifiers: Type.Array(
      Type.Object({
        type: identifierType,
        value: Type.String({ description: 'As the client first wrote it.' }),
        node: Type.String({ format: 'uuid', description: 'Where it belongs, for ever: see `nodes` of the merges.' }),
        first_trace_id: traceId('The first request with it.'),
        userIndex,
        first_seen: time('When that came in.'),
      }),
      { description: 'Every identifier, and where it came from.' },
    ),
    merges: Type.Array(
      Type.Object({
        from: profileId('What was merged away.'),
        into: profileId('What lived on.'),
        via,
        nodes: joinedNodes,
        trace_id: traceId('The request that did it. Unmerge takes this.'),
        userIndex,
        at: time('When that came in.'),
      }),
      { description: 'Every merge, and its cause.' },
    ),
    refusals: Type.Array(
      Type.Object({
        type: identifierType,
        value: Type.String({ description: 'The identifier that was not linked.' }),
        reason: Type.Union(
          Object.keys(REFUSAL_REASONS).map((reason) => Type.Literal(reason)),
          {
            description: Object.entries(REFUSAL_REASONS)
              .map(([code, words]) => `\`${code}\`: ${words}`)
              .join('; '),
          },
        ),
        trace_id: traceId('The first request that was refused so.'),
        userIndex,
        at: time('When that came in.'),
        count: Type.Integer({ minimum: 1, description: 'How often it happened.' }),
      }),
      { description: 'What was not linked or merged when a record went to this profile, and why not.' },
    ),
    chain: Type.Optional(
      Type.Array(ChainStep, { minItems: 1, description: 'With `from` and `to`: the one way from one to the other.' }),
    ),
  },
  { title: 'Identity', description: 'Why this is one person.' },
);

export const UnmergeRequest = Type.Object(
  { trace_id: traceId('The request whose merges are to be undone.') },
  { title: 'UnmergeRequest', description: 'Which merges to undo.', additionalProperties: false },
);

export const Unmerged = Type.Object(
  {
    trace_id: traceId('Names this unmerge. It is in the audit.'),
    undone: Type.Integer({ minimum: 1, description: 'Merges that were undone.' }),
    profile_ids: Type.Array(Type.String({ format: 'uuid' }), {
      description: 'The profiles that there are now instead of one, oldest first.',
    }),
  },
  { title: 'Unmerged', description: 'What came of an unmerge.' },
);

export const Erased = Type.Object(
  { trace_id: traceId('Names this erasure. It is in the audit.') },
  { title: 'Erased', description: 'The profile is gone.' },
);
