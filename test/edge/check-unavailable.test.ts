/** `POST /ingest/events/check` while the store or the log cannot be read: the client is asked to retry, and no bug is logged. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { suite, test, type TestContext } from 'node:test';
import { InFlight } from '../../src/edge/admission.ts';
import { CheckIntake } from '../../src/edge/check-intake.ts';
import { allocateRateLimits, RateLimits } from '../../src/edge/rate-limits.ts';
import type { ApiKey } from '../../src/keys.ts';
import { OpenPlans } from '../../src/keys/open-plans.ts';
import { LogCorruptError, LogUnavailableError } from '../../src/log.ts';
import { StoreConflictError, StoreUnavailableError } from '../../src/store-writer.ts';
import { allocateMetrics, metricsWriter, renderMetrics } from '../../src/telemetry/metrics.ts';
import { user } from '../server.ts';

const KEY = { id: 'key_1', kind: 'secret', accountId: 'acc_1', environment: 'development', expiresAt: null };

/** The response to a check whose prediction fails with `error`, and what was logged. */
async function checkFailingWith(context: TestContext, error: Error) {
  const logged: string[] = [];
  const metrics = allocateMetrics(1);
  const key = { ...KEY, revokedAt: null, rateLimit: null, enforcedPlan: null, origins: [] } as unknown as ApiKey;
  const parts = {
    keys: { peek: () => key },
    keyUsage: { note: () => undefined },
    log: { problem: () => null },
    rateLimits: new RateLimits(allocateRateLimits(), 1),
    inFlight: new InFlight(1_000_000),
    metrics: metricsWriter(metrics, 0),
    logger: { info: () => undefined, error: (_line: object, message: string) => logged.push(message) },
    environment: 'any',
    now: Date.now,
    receiptTime: Date.now,
    newTraceId: () => 'trace',
    unavailable: () => null,
    isStopping: () => false,
    predict: () => Promise.reject(error),
    plans: new OpenPlans({ find: () => Promise.resolve(undefined) }),
  };
  const intake = new CheckIntake(parts as unknown as ConstructorParameters<typeof CheckIntake>[0]);
  const server = createServer((request, response) => intake.handle(request, response)).listen(0, '127.0.0.1');
  context.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const response = await fetch(`http://127.0.0.1:${port}/ingest/events/check`, {
    method: 'POST',
    headers: { authorization: 'Bearer sk_dev_test', 'content-type': 'application/json' },
    body: JSON.stringify({ users: [user('ada')] }),
  });
  const bugs = /^sluice_internal_errors_total (\d+)$/m.exec(renderMetrics(metrics, { version: '1' }))?.[1];
  return { status: response.status, text: await response.text(), logged, bugs };
}

suite('POST /ingest/events/check, while what would happen is not known', () => {
  const temporary = [
    new StoreUnavailableError('the store is gone'),
    new StoreConflictError('another writer was first'),
    new LogUnavailableError('the log is gone'),
    new LogCorruptError('the log is damaged'),
    Object.assign(new Error('too many open files'), { code: 'EMFILE' }),
  ];
  for (const error of temporary) {
    test(`"${error.message}" gets a 503 that says so`, async (context) => {
      const { status, text, logged, bugs } = await checkFailingWith(context, error);
      assert.equal(status, 503, text);
      assert.match(text, /cannot be read now/);
      assert.deepEqual([logged, bugs], [['a request could not be checked'], '0']);
    });
  }

  test('any other error is logged and counted as a bug', async (context) => {
    const { status, logged, bugs } = await checkFailingWith(context, new TypeError('undefined is not a function'));
    assert.equal(status, 503);
    assert.deepEqual([logged, bugs], [['request failed unexpectedly'], '1']);
  });
});
