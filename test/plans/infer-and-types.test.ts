/** From the catalogue to a plan, and from a plan to TypeScript types; what is made is valid, and the compiler takes it. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type CataloguedProperty, inferPlan } from '../../src/plans/infer.ts';
import { type Plan, parsePlan } from '../../src/plans/plan.ts';
import { typesOf } from '../../src/plans/types.ts';
import { folderIn } from '../faults/scope.ts';

const property = (
  name: string,
  share: number,
  types: readonly (readonly ['string' | 'number' | 'null' | 'array', number])[],
  isPersonal = false,
): CataloguedProperty => ({
  ...{ name, share, is_personal: isPersonal },
  types: types.map(([type, of]) => ({ type, share: of })),
});

const CATALOGUE = {
  events: [
    {
      ...{ event_name: 'order placed', examined: 500 },
      properties: [
        property('total', 1, [
          ['string', 0.004],
          ['number', 0.996],
        ]),
        property('card', 0.5, [['string', 1]], true),
        property('note', 1, [
          ['string', 0.999],
          ['null', 0.001],
        ]),
        property('__proto__', 1, [['string', 1]]),
      ],
    },
    { event_name: 'rare', examined: 3, properties: [property('n', 1, [['number', 1]])] },
    { event_name: '__proto__', examined: 3, properties: [] },
  ],
  user_properties: { examined: 90, properties: [property('plan', 1, [['string', 1]])] },
  profile_fields: null,
};

suite('A plan from the catalogue', () => {
  test('has the events with their common types, and requires what every one of many has', () => {
    assert.deepEqual(inferPlan(CATALOGUE, null), {
      unplanned_events: 'warn',
      events: {
        'order placed': {
          mode: 'warn',
          schema: {
            type: 'object',
            properties: {
              total: { type: 'number' },
              card: { type: 'string', 'x-personal': true },
              note: { type: ['string', 'null'] },
            },
            required: ['total', 'note'],
          },
        },
        rare: { mode: 'warn', schema: { type: 'object', properties: { n: { type: 'number' } } } },
      },
      user_properties: { mode: 'warn', schema: { type: 'object', properties: { plan: { type: 'string' } } } },
    });
  });

  test('is valid, and leaves what is planned already as it is', () => {
    const own = { mode: 'enforce', schema: { type: 'object' } } as const;
    const current: Plan = { version: 4, unplanned_events: 'reject', events: { rare: own }, user_properties: own };
    const plan = inferPlan(CATALOGUE, current);
    assert.deepEqual(plan.events.rare, own);
    assert.deepEqual(plan.user_properties, own);
    assert.equal(plan.version, 4);
    assert.equal(plan.unplanned_events, 'reject');
    assert.equal(parsePlan(JSON.stringify(plan)).ok, true);
  });
});

const PLAN: Plan = {
  version: 3,
  unplanned_events: 'warn',
  events: {
    order_placed: {
      mode: 'warn',
      description: 'An order, /* not */ a cart.',
      schema: {
        type: 'object',
        required: ['total', 'state'],
        $defs: { money: { type: 'number', minimum: 0 } },
        properties: {
          total: { $ref: '#/$defs/money', description: 'With tax.' },
          state: { enum: ['open', 'paid', null] },
          'gift-note': { type: ['string', 'null'] },
          items: {
            type: 'array',
            items: { type: 'object', required: ['sku'], properties: { sku: { type: 'integer' } } },
          },
          shop: { anyOf: [{ type: 'string' }, { const: 7 }] },
          anything: {},
        },
      },
    },
    'page viewed': { mode: 'off', schema: {} },
    open: { mode: 'off', schema: { properties: { a: true }, additionalProperties: true } },
    signed_up: { mode: 'warn', schema: { required: ['plan'] } },
  },
  user_properties: { mode: 'warn', schema: { properties: { plan: { type: 'string' } } } },
};

const TYPES = `// Written by sluice plan types from version 3 of the plan. Do not edit.

/** Event names and their properties: new Sluice<EventMap>(…). */
export interface EventMap {
  /** An order, /* not *\\/ a cart. */
  order_placed: {
    /** With tax. */
    readonly total: number;
    readonly state: "open" | "paid" | null;
    readonly "gift-note"?: string | null;
    readonly items?: readonly ({
      readonly sku: number;
    })[];
    readonly shop?: string | 7;
    readonly anything?: unknown;
  };
  "page viewed": {};
  open: {
    readonly a?: unknown;
    readonly [name: string]: unknown;
  };
  signed_up: {
    readonly plan: unknown;
  };
}

export type UserProperties = {
  readonly plan?: string;
};
`;

suite('Types of a plan', () => {
  test('say what the schemas say', () => {
    assert.equal(typesOf(PLAN), TYPES);
  });

  test('let the compiler check calls of the SDK', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const sdk = fileURLToPath(new URL('../../sdk/src/server.ts', import.meta.url));
    writeFileSync(join(folder, 'events.ts'), typesOf(PLAN));
    writeFileSync(
      join(folder, 'calls.ts'),
      `import { Sluice } from ${JSON.stringify(sdk)};
       import type { EventMap } from './events.ts';
       const sluice = new Sluice<EventMap>({ url: 'http://127.0.0.1:9', key: 'pk_test' });
       sluice.track('order_placed', { total: 5, state: 'paid', items: [{ sku: 1 }], shop: 7 });
       sluice.track('page viewed');
       sluice.track('open', { a: 1, b: 2 });
       sluice.track('signed_up', { plan: 'pro' });
       // @ts-expect-error: plan is required
       sluice.track('signed_up');
       // @ts-expect-error: no such state
       sluice.track('order_placed', { total: 5, state: 'lost' });
       // @ts-expect-error: total is required
       sluice.track('order_placed', { state: 'paid' });
       // @ts-expect-error: a misspelt property
       sluice.track('order_placed', { total: 5, state: 'paid', coupn: 'x' });
       // @ts-expect-error: no such event
       sluice.track('order_palced', {});
      `,
    );
    const tsc = fileURLToPath(new URL('../../node_modules/.bin/tsc', import.meta.url));
    const types = fileURLToPath(new URL('../../node_modules/@types', import.meta.url));
    const flags = [
      '--ignoreConfig',
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--target',
      'esnext',
      '--module',
      'nodenext',
      '--typeRoots',
      types,
      '--types',
      'node',
      '--allowImportingTsExtensions',
    ];
    const { stdout } = await promisify(execFile)(tsc, [...flags, join(folder, 'calls.ts')]).catch(
      (error: { stdout: string }) => error,
    );
    assert.equal(stdout, '');
  });
});
