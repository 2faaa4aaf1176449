import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as fc from 'fast-check';
import { Compile } from 'typebox/compile';
import { Check } from 'typebox/value';
import * as examples from '../../src/api/examples.ts';
import { follow, type JsonSchema, type Operation, type Response } from '../../src/api/openapi-types.ts';
import { USER_RULES } from '../../src/api/reference.ts';
import { IngestRequest, User } from '../../src/api/ingest-operation.ts';
import { ERRORS } from '../../src/errors.ts';
import { validateRequest } from '../../src/validation/validate-request.ts';
import { inlined, openApiDocument } from './document.ts';
import { startApp } from './running-app.ts';
import { users } from './users.ts';

const DOCUMENT = await openApiDocument();

const OPERATIONS = Object.entries(DOCUMENT.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]): [string, Operation] => [`${method} ${path}`, operation]),
);

function responsesOf(operation: Operation): [string, Response][] {
  return Object.entries(operation.responses).map(([status, given]) => [
    status,
    '$ref' in given ? follow(DOCUMENT.components.responses, given) : given,
  ]);
}

function matches(schema: JsonSchema, value: unknown): boolean {
  return Check(inlined(DOCUMENT, schema) as object, value);
}

/** The paths of the tree of routes that Fastify prints, written as OpenAPI writes them. */
function pathsOf(tree: string): string[] {
  const above: string[] = [];
  return [...tree.matchAll(/^(.*?)(?:├|└)── (\S+) \(/gm)].map(([, indent = '', name = '']) => {
    const depth = indent.length / 4;
    // The root is the trunk of the tree, so what is right above it comes without its slash.
    const path = `${depth === 0 ? '' : above[depth - 1]}${name}`;
    above.splice(depth, Infinity, path);
    return path.replaceAll(/:(\w+)/g, '{$1}');
  });
}

function rejectionsOf(request: unknown): readonly unknown[] {
  const validation = validateRequest(JSON.stringify(request));
  assert.ok(validation.ok);
  return validation.rejections;
}

describe('the OpenAPI document', () => {
  test('says which version it describes and where the server is', async () => {
    assert.equal(DOCUMENT.openapi, '3.1.1');
    assert.equal(DOCUMENT.info.version, '1.2.3');
    assert.equal(DOCUMENT.servers[0]?.url, '/');
    const elsewhere = await openApiDocument({ serverUrl: () => 'https://events.example.com' });
    assert.equal(elsewhere.servers[0]?.url, 'https://events.example.com');
  });

  test('is plain JSON: it reads back as it was', () => {
    assert.deepEqual(JSON.parse(JSON.stringify(DOCUMENT)), DOCUMENT);
  });

  test('has something at the end of every reference, and uses every schema and response', () => {
    const found = new Set<string>();
    JSON.stringify(DOCUMENT, (key, value: unknown) => {
      if (key === '$ref') found.add(value as string);
      return value;
    });
    for (const reference of found) {
      const [root, ...steps] = reference.split('/');
      assert.equal(root, '#');
      const target = steps.reduce<unknown>((at, step) => (at as Record<string, unknown>)[step], DOCUMENT);
      assert.ok(typeof target === 'object' && target !== null, reference);
    }
    for (const name of Object.keys(DOCUMENT.components.schemas))
      assert.ok(found.has(`#/components/schemas/${name}`), name);
    assert.ok(found.size > 25);
  });

  test('describes each operation: an id of its own, a summary, responses with a trace_id', () => {
    const ids = OPERATIONS.map(([, { operationId }]) => operationId);
    assert.equal(new Set(ids).size, ids.length);
    for (const [name, operation] of OPERATIONS) {
      assert.ok(operation.summary.length > 0 && operation.description.length > 0, name);
      const responses = responsesOf(operation);
      assert.ok(
        responses.some(([status]) => status.startsWith('2')),
        name,
      );
      for (const [status, { description, headers, content = {} }] of responses) {
        assert.ok(description.length > 0, `${name} ${status}`);
        assert.ok('X-Trace-Id' in headers, `${name} ${status}`);
        assert.equal(Object.keys(content).length > 0, status !== '204', `${name} ${status}`);
      }
      for (const scheme of operation.security.flatMap(Object.keys)) {
        assert.ok(scheme in DOCUMENT.components.securitySchemes, scheme);
      }
    }
  });

  test('names each schema by its title', () => {
    for (const [name, { title }] of Object.entries(DOCUMENT.components.schemas)) assert.equal(title, name);
  });

  test('promises Retry-After where trying again makes sense, and only there', () => {
    const retryable = new Map(Object.values(ERRORS).map(({ status, retryable }) => [String(status), retryable]));
    for (const [name, operation] of OPERATIONS) {
      for (const [status, { headers }] of responsesOf(operation)) {
        assert.equal('Retry-After' in headers, retryable.get(status) ?? false, `${name} ${status}`);
      }
    }
  });

  test('gives examples of responses that match their schemas', () => {
    let checked = 0;
    const responses = [...OPERATIONS.flatMap(([, operation]) => responsesOf(operation))];
    for (const [name, response] of [...responses, ...Object.entries(DOCUMENT.components.responses)]) {
      for (const { schema, examples: given = {} } of Object.values(response.content ?? {})) {
        for (const { value } of Object.values(given)) {
          assert.ok(matches(schema, value), `${name}: ${JSON.stringify(value)}`);
          checked++;
        }
      }
    }
    assert.ok(checked > 20);
  });

  test('lists every error of the error table', () => {
    assert.deepEqual(
      DOCUMENT['x-errors'].map(({ status, error, retry }) => ({ status, text: error, retryable: retry })),
      Object.values(ERRORS),
    );
  });

  test('is what the server sends, and has all of its paths and no others', async (t) => {
    const { app, call } = await startApp(t);
    const { text, headers } = await call('GET', '/openapi.json');
    assert.deepEqual(JSON.parse(text), DOCUMENT);
    assert.equal(headers['content-type'], 'application/json; charset=utf-8');
    const described = Object.keys(DOCUMENT.paths).filter((path) => !path.startsWith('/ingest/'));
    // The root leads people to the page, which is no call, and neither is the SDK.
    const isFile = (path: string): boolean => /^\/($|dashboard|ingest\/sluice\.js$)/.test(path);
    const paths = pathsOf(app.printRoutes({ commonPrefix: false })).filter((path) => !isFile(path));
    assert.deepEqual(new Set(paths), new Set(described));
  });

  test('has the methods of each path that the server has, and no others', async (t) => {
    const { call } = await startApp(t);
    for (const [path, item] of Object.entries(DOCUMENT.paths)) {
      if (path.startsWith('/ingest/')) continue;
      const { headers } = await call('OPTIONS', path.replace(/\{\w+\}/, 'x'));
      const described = Object.keys(item).map((method) => method.toUpperCase());
      if (described.includes('GET')) described.push('HEAD');
      assert.equal(headers.allow, described.sort().join(', '), path);
    }
  });

  test('describes the responses that the server gives', async (t) => {
    const trace = '019a8267-8f3a-7c41-9d0e-5b6a7f21c3de';
    const { call } = await startApp(t, { newTraceId: () => trace });
    const notReady = await startApp(t, { readiness: () => ({ ready: false, reasons: ['disk is full'] }) });
    const key = { headers: { authorization: 'Bearer pk_x' } };
    const replies = [
      [DOCUMENT.paths['/livez']?.get?.responses[200], await call('GET', '/livez')],
      [DOCUMENT.paths['/readyz']?.get?.responses[200], await call('GET', '/readyz')],
      [DOCUMENT.paths['/readyz']?.get?.responses[503], await notReady.call('GET', '/readyz')],
      [DOCUMENT.components.responses['Forbidden'], await call('GET', '/docs', key)],
      [DOCUMENT.components.responses['NotFound'], await call('GET', '/nothing')],
      [DOCUMENT.components.responses['MethodNotAllowed'], await call('PUT', '/docs')],
    ] as const;
    for (const [response, { text, headers }] of replies) {
      assert.ok(response && 'content' in response);
      const schema = response.content?.['application/json']?.schema;
      assert.ok(schema && matches(schema, JSON.parse(text)), text);
      for (const name of Object.keys(response.headers)) assert.ok(name.toLowerCase() in headers, name);
    }
  });
});

describe('the example requests', () => {
  const bodies = DOCUMENT.paths['/ingest/events']?.post?.requestBody?.content['application/json'];

  test('the first one is valid by its schema and accepted by the validator', () => {
    const request = bodies?.examples?.['valid']?.value;
    assert.ok(bodies && matches(bodies.schema, request));
    assert.deepEqual(rejectionsOf(request), examples.SMALL_RESPONSE.errors);
  });

  test('of the second one the validator rejects exactly the user that the example response says', () => {
    const request = bodies?.examples?.['partly_valid']?.value as typeof examples.PARTLY_VALID_REQUEST;
    const [good, bad] = request.users;
    assert.ok(Check(User, good) && !Check(User, bad));
    assert.deepEqual(rejectionsOf(request), examples.PARTLY_VALID_RESPONSE.errors);
    assert.equal(examples.PARTLY_VALID_RESPONSE.users_rejected, 1);
    assert.equal(examples.PARTLY_VALID_RESPONSE.users_accepted, 1);
  });

  test('the failed ones fail with the texts of their example responses', () => {
    assert.deepEqual(rejectionsOf(examples.ALL_INVALID_REQUEST), examples.ALL_INVALID_RESPONSE.errors);
    assert.deepEqual(validateRequest(JSON.stringify(examples.UNUSABLE_REQUEST)), {
      ok: false,
      message: examples.UNUSABLE_RESPONSE.message,
    });
  });
});

describe('the rules for users', () => {
  const identifiers = { user_id: 'u-1' };
  const events = [{ event_name: 'x' }];
  const deep = JSON.parse(`${'['.repeat(65)}${']'.repeat(65)}`) as unknown;
  /** For each rule, in order, a user that breaks it and what stands for the placeholders. */
  const offenders: [user: unknown, placeholders: Record<string, string>][] = [
    [7, {}],
    [{ identifiers: { user_id: 42 }, events }, { name: 'user_id' }],
    [{ identifiers: {}, events }, {}],
    [{ identifiers, events: [] }, {}],
    [{ identifiers: { user_id: 'u-1', city: 5 }, events }, { name: 'city' }],
    [{ identifiers: { email: 'x'.repeat(513) }, events }, { name: 'email' }],
    [{ identifiers, user_properties: [], events }, {}],
    [{ identifiers, events: [...events, 5] }, { i: '1' }],
    [{ identifiers, events: [{ event_name: ' ' }] }, { i: '0' }],
    [{ identifiers, events: [{ event_name: 'x', timestamp: '2026-02-30' }] }, { i: '0' }],
    [{ identifiers, events: [{ event_name: 'x', revenue: '5' }] }, { i: '0' }],
    [{ identifiers, events: [{ event_name: 'x', $event_id: '' }] }, { i: '0' }],
    [{ identifiers, user_properties: { a: deep }, events }, { path: 'user_properties.a' }],
    [{ identifiers, user_properties: { ['k'.repeat(513)]: 1 }, events }, { path: 'user_properties' }],
    [{ identifiers, user_properties: { a: '\0' }, events }, { path: 'user_properties.a' }],
  ];

  test('each has a user that breaks it', () => assert.equal(offenders.length, USER_RULES.length));

  for (const [index, { rule, message }] of USER_RULES.entries()) {
    test(`the validator responds as documented: ${rule}`, () => {
      const [user, placeholders] = offenders[index] ?? [];
      const expected = message.replace(/<(\w+)>/g, (_, name: string) => placeholders?.[name] ?? '?');
      assert.deepEqual(rejectionsOf({ users: [user] }), [{ userIndex: 0, message: expected }]);
    });
  }
});

describe('the schema of requests', () => {
  const schema = Compile(IngestRequest);

  test('accepts whatever the validator accepts without a rejection', () => {
    let accepted = 0;
    let rejected = 0;
    fc.assert(
      fc.property(users, (given) => {
        const text = JSON.stringify({ users: given });
        const validation = validateRequest(text);
        if (validation.ok && validation.rejections.length === 0) {
          accepted++;
          assert.ok(schema.Check(JSON.parse(text)), text);
        } else {
          rejected++;
        }
      }),
      { numRuns: 2_000 },
    );
    // The property says nothing unless both happen often.
    assert.ok(accepted > 200 && rejected > 200, `${accepted} accepted, ${rejected} rejected`);
  });

  for (const [what, request] of [
    ['no users', {}],
    ['users that are not an array', { users: {} }],
    ['an empty array of users', { users: [] }],
    ['1,001 users', { users: Array.from({ length: 1_001 }, () => examples.SMALL_REQUEST.users[0]) }],
    ['an array instead of an object', []],
    ['null identifiers only', { users: [{ identifiers: { user_id: null }, events: [{ event_name: 'x' }] }] }],
    ['a blank identifier only', { users: [{ identifiers: { email: ' ' }, events: [{ event_name: 'x' }] }] }],
    ['a number as profile field', { users: [{ identifiers: { email: 'a', age: 5 }, events: [{ event_name: 'x' }] }] }],
    ['no events', { users: [{ identifiers: { email: 'a' }, events: [] }] }],
    ['an event without a name', { users: [{ identifiers: { email: 'a' }, events: [{}] }] }],
    ['a text as revenue', { users: [{ identifiers: { email: 'a' }, events: [{ event_name: 'x', revenue: '1' }] }] }],
  ] as const) {
    test(`refuses ${what}, as the validator does`, () => {
      assert.ok(!schema.Check(request));
      const validation = validateRequest(JSON.stringify(request));
      assert.ok(!validation.ok || validation.rejections.length > 0);
    });
  }
});
