import assert from 'node:assert/strict';
import test from 'node:test';
import { outcomesOf, refusalWords } from '../../dashboard/src/pages/request-outcomes.ts';
import { REQUESTS_BY_STATUS } from '../../src/telemetry/metrics.ts';

test('every status that the server counts has words of its own', () => {
  const counted = [...REQUESTS_BY_STATUS.keys()].map((status) => ({ status, requests: 1 }));
  const titles = outcomesOf(counted).map(({ title }) => title);
  assert.ok(!titles.includes('Other'), titles.join(', '));
  assert.equal(new Set(titles).size, counted.length);
  assert.equal(outcomesOf([{ status: 418, requests: 3 }])[0]?.title, 'Other');
});

test('what needs attention is said in one sentence, and nothing else is', () => {
  assert.equal(
    refusalWords([
      { status: 202, requests: 9 },
      { status: 400, requests: 9 },
    ]),
    null,
  );
  assert.equal(
    refusalWords([{ status: 401, requests: 1 }]),
    'On the whole server, 1 request was refused for the key since it started.',
  );
  assert.equal(
    refusalWords([{ status: 401, requests: 1_200 }]),
    'On the whole server, 1,200 requests were refused for the key since it started.',
  );
  assert.equal(
    refusalWords([
      { status: 401, requests: 12 },
      { status: 403, requests: 3 },
      { status: 503, requests: 1 },
    ]),
    'On the whole server, 12 requests were refused for the key, 3 for the origin and 1 because the server was too busy or not ready, or a key was over its rate limit since it started.',
  );
});
