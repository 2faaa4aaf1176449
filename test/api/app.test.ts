import assert from 'node:assert/strict';
import { once } from 'node:events';
import { METHODS } from 'node:http';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { startApp } from './running-app.ts';

const OPERATOR_PATHS = ['/livez', '/readyz', '/metrics', '/version', '/openapi.json', '/docs'];
const PUBLISHABLE = { authorization: 'Bearer pk_0123456789' };

describe('health', () => {
  test('the process says that it is alive', async (t) => {
    const { call } = await startApp(t);
    const { status, text, headers } = await call('GET', '/livez');
    assert.equal(status, 200);
    assert.deepEqual(JSON.parse(text), { status: 'alive' });
    assert.equal(headers['cache-control'], 'no-store');
  });

  test('a server that accepts events is ready', async (t) => {
    const { call } = await startApp(t);
    const { status, text, headers } = await call('GET', '/readyz');
    assert.equal(status, 200);
    assert.deepEqual(JSON.parse(text), { status: 'ready' });
    assert.equal(headers['retry-after'], undefined);
  });

  test('a server that refuses events is not ready, says why and when to ask again, and is still alive', async (t) => {
    const reasons = ['disk is full', 'shutting down'];
    const { call } = await startApp(t, { readiness: () => ({ ready: false, reasons }) });
    const { status, text, headers } = await call('GET', '/readyz');
    assert.equal(status, 503);
    assert.deepEqual(JSON.parse(text), { status: 'not ready', reasons });
    assert.equal(headers['retry-after'], '1');
    assert.equal((await call('GET', '/livez')).status, 200);
  });

  test('metrics are served as Prometheus text', async (t) => {
    const { call } = await startApp(t);
    const { status, text, headers } = await call('GET', '/metrics');
    assert.equal(status, 200);
    assert.equal(text, '# HELP up Up.\n# TYPE up gauge\nup 1\n');
    assert.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8');
  });

  test('a health check that is under way when the server closes gets its ordinary response', async (t) => {
    const { app, port } = await startApp(t);
    const socket = connect(port, '127.0.0.1');
    const ended = once(socket, 'close');
    const received: Buffer[] = [];
    const responses = () => Buffer.concat(received).toString('latin1').split('HTTP/1.1 ').slice(1);
    const firstResponse = new Promise<void>((resolve) => {
      socket.on('data', (chunk: Buffer) => {
        received.push(chunk);
        if (responses()[0]?.endsWith('{"status":"alive"}')) resolve();
      });
    });
    // One whole request and the beginning of a second: when the first is responded to, the second is under way.
    const request = 'GET /livez HTTP/1.1\r\nHost: sluice\r\n';
    socket.write(`${request}\r\n${request}`);
    await firstResponse;
    const closed = app.close();
    socket.write('\r\n');
    await Promise.all([closed, ended]);
    assert.equal(responses().length, 2);
    assert.match(responses()[1] ?? '', /^200 OK\r\n[^]*\{"status":"alive"\}$/);
  });
});

describe('every response', () => {
  const cases: [what: string, method: string, path: string, headers: Record<string, string>][] = [
    ...OPERATOR_PATHS.map((path): [string, string, string, Record<string, string>] => [path, 'GET', path, {}]),
    ['a 403', 'GET', '/livez', PUBLISHABLE],
    ['a 404', 'GET', '/nothing', {}],
    ['a 404 for a path that cannot be decoded', 'GET', '/%zz', {}],
    ['a 405', 'POST', '/livez', {}],
    ['a 500', 'GET', '/broken', {}],
  ];

  for (const [what, method, path, headers] of cases) {
    test(`${what}: has a trace_id of its own and headers that keep browsers safe`, async (t) => {
      const { call } = await startApp(t, {
        prepare: (app) => {
          app.get('/broken', () => {
            throw new Error('broken');
          });
        },
      });
      const first = await call(method, path, { headers: { ...headers, 'x-trace-id': 'mine', 'request-id': 'mine' } });
      const second = await call(method, path, { headers });
      assert.equal(first.headers['x-trace-id'], 'trace-1');
      assert.equal(second.headers['x-trace-id'], 'trace-2');
      assert.equal(first.headers['x-content-type-options'], 'nosniff');
      assert.equal(first.headers['referrer-policy'], 'no-referrer');
      assert.equal(first.headers['x-frame-options'], 'DENY');
      assert.equal(first.headers['cross-origin-resource-policy'], 'same-origin');
      assert.match(
        first.headers['content-security-policy'] as string,
        /^default-src 'none'; .*frame-ancestors 'none'$/,
      );
      assert.equal(first.headers['access-control-allow-origin'], undefined);
      if (first.status < 400) return;
      assert.equal((JSON.parse(first.text) as { trace_id: string }).trace_id, 'trace-1');
      assert.equal(first.headers['cache-control'], 'no-store');
    });
  }
});

describe('paths and methods', () => {
  test('the fast path never gets to the app', async (t) => {
    const { call } = await startApp(t);
    assert.equal((await call('POST', '/ingest/events')).text, 'fast path');
  });

  for (const path of ['/nothing', '/livez/', '/LIVEZ', '//livez', '/livez/x', '/%zz', '/docs%00', '/__proto__']) {
    test(`${path} is not found`, async (t) => {
      const { call } = await startApp(t);
      const { status, text, headers } = await call('GET', path);
      assert.equal(status, 404);
      assert.deepEqual(JSON.parse(text), { error: 'not found', trace_id: 'trace-1' });
      assert.equal(headers['content-type'], 'application/json; charset=utf-8');
    });
  }

  test('a person who opens the server in a browser is led to the dashboard', async (t) => {
    const { call } = await startApp(t);
    const { status, headers } = await call('GET', '/');
    assert.equal(status, 302);
    assert.equal(headers['location'], '/dashboard');
  });

  test('an unknown path is not found whatever is sent to it', async (t) => {
    const { call } = await startApp(t);
    for (const type of ['application/json', 'text/xml', 'nonsense']) {
      const { status, text } = await call('POST', '/nothing', { headers: { 'content-type': type }, body: '{' });
      assert.equal(status, 404);
      assert.equal((JSON.parse(text) as { error: string }).error, 'not found');
    }
  });

  test('a path with a query is the same path', async (t) => {
    const { call } = await startApp(t);
    assert.equal((await call('GET', '/livez?verbose=1')).status, 200);
  });

  for (const path of OPERATOR_PATHS) {
    test(`${path} refuses every method but GET and HEAD, and says which it has`, async (t) => {
      const { call } = await startApp(t);
      const others = METHODS.filter((method) => !['GET', 'HEAD', 'CONNECT'].includes(method));
      assert.ok(others.includes('POST') && others.includes('OPTIONS') && others.includes('QUERY'));
      for (const method of others) {
        const { status, text, headers } = await call(method, path);
        assert.equal(status, 405, method);
        assert.equal(headers.allow, 'GET, HEAD');
        assert.deepEqual(JSON.parse(text), { error: 'method not allowed', trace_id: headers['x-trace-id'] });
      }
    });

    test(`${path} responds to HEAD as to GET, without the body`, async (t) => {
      const { call } = await startApp(t);
      const get = await call('GET', path);
      const head = await call('HEAD', path);
      assert.equal(head.status, 200);
      assert.equal(head.text, '');
      assert.equal(head.headers['content-length'], get.headers['content-length']);
      assert.equal(head.headers['content-type'], get.headers['content-type']);
    });
  }

  test('a method that a path does not have is refused whatever the body is', async (t) => {
    const { call } = await startApp(t);
    const headers = { 'content-type': 'text/xml' };
    assert.equal((await call('POST', '/docs', { headers, body: '<x'.repeat(100_000) })).status, 405);
  });
});

describe('publishable keys', () => {
  const refused = { error: 'forbidden', message: 'publishable keys may only be used under /ingest/' };

  for (const [method, path] of [
    ...OPERATOR_PATHS.map((path) => ['GET', path] as const),
    ['GET', '/nothing'],
    ['GET', '/%zz'],
    ['POST', '/livez'],
    ['GET', '/ingest'],
    ['GET', '/ingestion/x'],
    ['GET', '/profiles?user_id=u-1'],
  ] as const) {
    test(`${method} ${path} is forbidden`, async (t) => {
      const { call } = await startApp(t);
      const { status, text } = await call(method, path, { headers: PUBLISHABLE });
      assert.equal(status, 403);
      assert.deepEqual(JSON.parse(text), { ...refused, trace_id: 'trace-1' });
    });
  }

  test('are recognised however the word Bearer is written', async (t) => {
    const { call } = await startApp(t);
    for (const scheme of ['bearer', 'BEARER', 'Bearer ', 'bEaReR']) {
      const { status } = await call('GET', '/livez', { headers: { authorization: `${scheme} pk_x` } });
      assert.equal(status, 403, scheme);
    }
  });

  test('are not forbidden under /ingest/, there is just nothing there', async (t) => {
    const { call } = await startApp(t);
    assert.equal((await call('POST', '/ingest/other', { headers: PUBLISHABLE })).status, 404);
  });

  test('are the only ones: operators may send any other credentials, or none', async (t) => {
    const { call } = await startApp(t);
    for (const authorization of [
      'Bearer sk_dev_x',
      'Bearer PK_x',
      'Basic cGtfeDo=',
      'Bearer',
      'pk_x',
      'Bearer x pk_',
    ]) {
      assert.equal((await call('GET', '/metrics', { headers: { authorization } })).status, 200, authorization);
    }
  });
});

describe('what goes wrong inside', () => {
  test('an exception becomes a 500 without details, and is passed on with its trace_id', async (t) => {
    const failure = new Error('password of the database is hunter2');
    const { call, errors } = await startApp(t, {
      readiness: () => {
        throw failure;
      },
    });
    const { status, text, headers } = await call('GET', '/readyz');
    assert.equal(status, 500);
    assert.deepEqual(JSON.parse(text), { error: 'internal error', trace_id: 'trace-1' });
    assert.equal(headers['retry-after'], '1');
    assert.deepEqual(errors, [{ error: failure, traceId: 'trace-1' }]);
  });

  test('an exception that claims to be a 404 of some library is a 500 all the same', async (t) => {
    const { call, errors } = await startApp(t, {
      renderMetrics: () => {
        throw Object.assign(new Error('row 17 of table keys'), { statusCode: 404, code: 'ENOENT' });
      },
    });
    const { status, text } = await call('GET', '/metrics');
    assert.equal(status, 500);
    assert.ok(!text.includes('table'));
    assert.equal(errors.length, 1);
  });

  test('a promise that is rejected is no different', async (t) => {
    const { call, errors } = await startApp(t, {
      prepare: (app) => {
        app.get('/later', async () => Promise.reject(new TypeError('later')));
      },
    });
    assert.equal((await call('GET', '/later')).status, 500);
    assert.ok(errors[0]?.error instanceof TypeError);
  });
});

describe('routes that are added later', () => {
  const withEcho = {
    prepare: (app: FastifyInstance) => {
      const body = Type.Object({ limit: Type.Integer({ minimum: 1, maximum: 500 }) });
      const schema = Type.Object({ limit: Type.Integer() });
      app.post('/echo', { schema: { body, response: { 200: schema } } }, (request, reply) => {
        reply.send({ ...(request.body as object), secret: 'not in the schema' });
      });
    },
  };
  const headers = { 'content-type': 'application/json' };

  test('take TypeBox schemas, and respond with what these allow and nothing else', async (t) => {
    const { call } = await startApp(t, withEcho);
    const { status, text } = await call('POST', '/echo', { headers, body: '{"limit":5}' });
    assert.equal(status, 200);
    assert.deepEqual(JSON.parse(text), { limit: 5 });
  });

  test('refuse a body that does not match, in words', async (t) => {
    const { call, errors } = await startApp(t, withEcho);
    const { status, text } = await call('POST', '/echo', { headers, body: '{"limit":501}' });
    assert.equal(status, 400);
    assert.deepEqual(JSON.parse(text), {
      error: 'bad request',
      trace_id: 'trace-1',
      message: 'body/limit must be <= 500',
    });
    assert.deepEqual(errors, []);
  });

  test('refuse a body that is not JSON, or of another type', async (t) => {
    const { call, errors } = await startApp(t, withEcho);
    const responses = [
      await call('POST', '/echo', { headers, body: '{' }),
      await call('POST', '/echo', { headers: { 'content-type': 'text/xml' }, body: '<x/>' }),
    ];
    for (const { status, text } of responses) {
      assert.equal(status, 400);
      assert.equal((JSON.parse(text) as { error: string }).error, 'bad request');
    }
    assert.deepEqual(errors, []);
  });

  test('refuse a body that is too large, and say how large it may be', async (t) => {
    const { call } = await startApp(t, withEcho);
    const { status, text } = await call('POST', '/echo', { headers, body: `{"limit":5}${' '.repeat(70_000)}` });
    assert.equal(status, 413);
    const message = 'the body must not exceed 65536 bytes';
    assert.deepEqual(JSON.parse(text), { error: 'payload too large', trace_id: 'trace-1', message });
  });
});
