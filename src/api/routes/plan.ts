/**
 * `GET` and `PUT /plan`: the tracking plan of a tenant, which says how its events look; `GET /plan/versions` lists what
 * was pushed when, and `GET /plan/violations` what events violate of it. A plan is checked before it is stored
 * (`plans/plan.ts`); a mistake is refused with its path. Pushing the same plan again changes nothing.
 */

import type { FastifyInstance } from 'fastify';
import { tenantPartsOf } from '../../model.ts';
import { describeMistakes, modesOf, PLAN_LIMITS, PLAN_MODES, parsePlan, UNPLANNED_MODES } from '../../plans/plan.ts';
import { PLAN_VERSIONS_MAX } from '../../plans.ts';
import { optionalParameter } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, raw, RefusedError, rowJson } from '../responses.ts';
import { namedExamples } from '../route-schema.ts';
import { count, flag, list, mapOf, object, oneOf, orNull, text, time, Type, uuid } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const PlannedProperties = object('PlannedProperties', 'A schema of properties, and the mode in which it is checked.', {
  mode: Type.Optional(
    oneOf(
      PLAN_MODES,
      '`off`: not checked. `warn`: accepted; violations are counted and on the trace. `enforce`: the user is rejected. Default: `warn`.',
    ),
  ),
  description: Type.Optional(text('For people.')),
  schema: Type.Optional(
    Type.Unknown({
      description:
        'A JSON Schema (2020-12) of the object that holds the properties. `"x-personal": true` marks personal data.',
    }),
  ),
});

const PlanBody = object(
  'Plan',
  'A tracking plan: the events you expect and their properties.',
  {
    version: Type.Optional(count('The version that was edited: the push is refused if that is not the newest.')),
    unplanned_events: Type.Optional(
      oneOf(UNPLANNED_MODES, 'What happens to events that are not in the plan. Default: `allow`.'),
    ),
    events: Type.Optional(mapOf(PlannedProperties, 'By event name.')),
    user_properties: Type.Optional(PlannedProperties),
    profile_fields: Type.Optional(PlannedProperties),
  },
  {
    'x-examples': namedExamples({
      plan: [
        'One event, enforced',
        {
          unplanned_events: 'warn',
          events: {
            order_placed: {
              mode: 'enforce',
              schema: {
                type: 'object',
                properties: {
                  total: { type: 'number', minimum: 0 },
                  card_holder: { type: 'string', 'x-personal': true },
                },
                required: ['total'],
              },
            },
          },
        },
      ],
    }),
  },
);

const versionFields = {
  version: count('Increases with each push; 0 if there is no plan.'),
  created_at: orNull(time('When it was pushed.')),
  created_by: orNull(text('The id of the key or member that pushed it.')),
};

export const CurrentPlan = object('CurrentPlan', 'A tracking plan.', {
  ...versionFields,
  plan: Type.Unknown({ description: 'The plan, as `PUT /plan` takes it.' }),
});

export const PushedPlan = object('PushedPlan', 'The result of a push.', {
  ...versionFields,
  is_new: flag('False if the plan has not changed.'),
});

const PlanVersionSchema = object('PlanVersion', 'One version of the plan.', {
  version: count('Increases with each push.'),
  created_at: time('When it was pushed.'),
  created_by: text('The id of the key or member that pushed it.'),
  enforces: flag('Whether something in it is enforced.'),
  warns: flag('Whether something in it warns.'),
});

const PlanVersions = object('PlanVersions', 'What was pushed.', {
  versions: list(PlanVersionSchema, `Newest first; the last ${PLAN_VERSIONS_MAX} are kept.`),
});

const PlanViolationSchema = object('PlanViolation', 'One way in which events violate the plan.', {
  version: count('The version of the plan that they violate.'),
  event_name: orNull(text('The event; null for user properties and profile fields.')),
  path: text('Where, without indexes: `items[].price`.'),
  message: text('What is wrong with it.'),
  count: count('How often: once per occurrence in each stored event.'),
  first_at: time('When the server received the first request with it.'),
  last_at: time('When the server received the newest request with it.'),
  trace_id: uuid('A request with it; its trace shows the warning.'),
});

const PlanViolations = object('PlanViolations', 'How events violate the plan.', {
  violations: Type.Array(PlanViolationSchema, { maxItems: 500, description: 'The most frequent first.' }),
});

const NO_PLAN = { version: 0, created_at: null, created_by: null };
const EMPTY_PLAN = '{"unplanned_events":"allow","events":{}}';
const WHOLE_NUMBER = /^\d{1,9}$/;

const version = optionalParameter(
  'This version. Default: the newest.',
  { type: 'integer', minimum: 1 },
  (given, name) => {
    if (WHOLE_NUMBER.test(given) && Number(given) > 0) return Number(given);
    throw new BadParameterError(`${name} must be a whole number of at least 1`);
  },
);

export function registerPlanRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { plans } = parts.keyStore;

  tenantRoute(app, parts, 'GET /plan', {
    operationId: 'getPlan',
    summary: 'The tracking plan',
    description: 'The newest version of the plan, or an older one. Without a plan, `version` is 0. See docs/plans.md.',
    query: { version },
    response: { description: 'The plan.', body: CurrentPlan },
    errors: [404],
    handler: async ({ tenantId, parameters }) => {
      const found = await plans.find(tenantPartsOf(tenantId), parameters.version ?? undefined);
      if (found !== undefined) return rowJson(CurrentPlan, { ...found, plan: raw(found.text) });
      return parameters.version === null ? { ...NO_PLAN, plan: raw(EMPTY_PLAN) } : undefined;
    },
  });

  tenantRoute(app, parts, 'PUT /plan', {
    bodyBytesMax: PLAN_LIMITS.bytesMax,
    operationId: 'putPlan',
    summary: 'Push a tracking plan',
    description:
      'Pushes a new version of the plan; servers use it within 2 seconds. 400 lists each error with its path. With `version`, 409 if another version was pushed in the meantime.',
    body: PlanBody,
    response: { description: 'The plan was pushed.', body: PushedPlan },
    errors: [409],
    handler: async ({ tenantId, body, by }) => {
      const reading = parsePlan(typeof body === 'string' ? body : 'null');
      if (!reading.ok) throw new BadParameterError(describeMistakes(reading.mistakes));
      const { version: basedOn = null, ...plan } = reading.plan;
      const { enforces, warns } = modesOf(plan);
      const createdBy = 'key_id' in by ? by.key_id : by.member_id;
      const { newest, isNew, isConflict } = await plans.push(tenantPartsOf(tenantId), {
        text: JSON.stringify(plan),
        enforces,
        warns,
        createdAt: parts.now(),
        createdBy,
        basedOn,
      });
      if (isConflict || newest === null) {
        const message = `this plan is based on version ${basedOn}, but the newest is ${newest?.version ?? 0}: merge its changes, then set version to ${newest?.version ?? 0}`;
        throw new RefusedError('conflict', message);
      }
      // A key says which version is enforced: here they are read again at once, elsewhere within a second.
      if (isNew) parts.keys.invalidate();
      return rowJson(PushedPlan, { ...newest, isNew });
    },
  });

  tenantRoute(app, parts, 'GET /plan/versions', {
    operationId: 'listPlanVersions',
    summary: 'Versions of the tracking plan',
    description: `What was pushed when, and by whom. The last ${PLAN_VERSIONS_MAX} versions are kept.`,
    response: { description: 'The versions.', body: PlanVersions },
    handler: async ({ tenantId }) => rowJson(PlanVersions, { versions: await plans.versions(tenantPartsOf(tenantId)) }),
  });

  tenantRoute(app, parts, 'GET /plan/violations', {
    operationId: 'listPlanViolations',
    summary: 'Violations of the tracking plan',
    description:
      'Violations of the plan by stored events, in mode `warn`, with counts. Kept until 30 days after it last occurred. Users that violate what is enforced are rejected: see `GET /rejections`.',
    query: { version: { ...version, description: 'Only violations of this version. Default: all.' } },
    response: { description: 'The violations.', body: PlanViolations },
    handler: async ({ tenantId, store, parameters }) =>
      rowJson(PlanViolations, { violations: await store.planViolations(tenantId, parameters.version) }),
  });
}
