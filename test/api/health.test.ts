import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { loadConfig } from '../../src/config/config.ts';
import { allocateMetrics, METRIC, metricsWriter } from '../../src/telemetry/metrics.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';
import { ask, useServer } from '../edge/fixture.ts';
import { runSluice, TEST_SETTINGS } from '../server.ts';
import { cannedStore } from './canned-store.ts';
import { startMemberApp } from './member-app.ts';
import { startReadingApp } from './reading-app.ts';

interface Setting {
  readonly name: string;
  readonly value: string;
  readonly default: string;
  readonly source: string;
  readonly description: string;
}

interface Health {
  readonly status: string;
  readonly reasons: string[];
  readonly started_at: string;
  readonly settings: Setting[];
  readonly [field: string]: unknown;
}

suite('GET /health', () => {
  test('tells what the threads have counted, beside the limits', async (t) => {
    const metricsBuffer = allocateMetrics(3);
    const [one, two] = [metricsWriter(metricsBuffer, 0), metricsWriter(metricsBuffer, 1)];
    one.set(METRIC.backlog_bytes, 5_000);
    one.set(METRIC.processor_lag, 1.5);
    one.set(METRIC.ledger_difference, 2);
    one.set(METRIC.log_missing_records, 3);
    one.set(METRIC.log_lost_records, 2);
    one.set(METRIC.clock_held, 0);
    two.set(METRIC.clock_held, 86_400.5);
    two.set(METRIC.disk_free_bytes, 7_000);
    one.inc(METRIC.requests_202, 4);
    two.set(METRIC.last_backup, Date.parse('2026-11-15T03:30:00.250Z') / 1_000);
    two.inc(METRIC.requests_202);
    two.inc(METRIC.requests_401, 12);
    const settings = loadConfig({ env: { SLUICE_BACKLOG_MAX: '1GB', SLUICE_EDGES: '2' }, args: [] });
    const startWarnings = ['log-ends is missing'];
    const { store } = cannedStore('nobody/development');
    const lost = [{ partition: 0, from: 5, to: 9, records: 4, at: 0 }];
    const ledger: typeof store.ledger = async (...args) => ({
      ...(await store.ledger(...args)),
      missingRecords: 7,
      lost,
    });
    const options = {
      metricsBuffer,
      startWarnings: () => startWarnings,
      processingProblem: () => 'the disk is full',
      store: { ...store, ledger },
      ...settings,
    };
    const { ask: read } = await startReadingApp(t, options);
    const {
      settings: rows,
      started_at: startedAt,
      memory_bytes: memory,
      ...rest
    } = (await read('/health')).body as Health;
    assert.deepEqual(rest, {
      status: 'ready',
      reasons: [],
      warnings: startWarnings,
      processing_problem: 'the disk is full',
      version: '1.2.3',
      role: 'all',
      node: process.versions.node,
      backlog_bytes: 5_000,
      backlog_bytes_max: 1_073_741_824,
      lag_seconds: 1.5,
      disk_free_bytes: 7_000,
      disk_free_bytes_min: 268_435_456,
      last_backup_at: '2026-11-15T03:30:00.250Z',
      clock_held_seconds: 86_400.5,
      clock_behind_seconds: 0,
      ledger_difference: 2,
      // As the ledger says it now, and not as the processor found it last.
      log_missing_records: 7,
      log_lost_records: 4,
      dead_letters: 0,
      requests: [
        { status: 202, requests: 5 },
        { status: 401, requests: 12 },
      ],
      edges: 2,
    });
    assert.ok((memory as number) > 1_000_000);
    assert.ok(Date.parse(startedAt) <= Date.now());
    assert.ok(rows.length > 10);
  });

  test('leaves out what a server of its role does not know: lag, ledger and disk', async (t) => {
    const env = { STORE_URL: 'postgres://u:hidden@db/x', LOG_URL: 'kafka://u:hidden@k:9092/x', SLUICE_ROLE: 'api' };
    const { ask: read } = await startReadingApp(t, { ...loadConfig({ env, args: [] }) });
    const { body, text } = await read('/health');
    const {
      role,
      lag_seconds: lag,
      ledger_difference: totals,
      disk_free_bytes: disk,
    } = body as Record<string, unknown>;
    assert.deepEqual([role, lag, totals, disk], ['api', null, null, null]);
    assert.ok(text.includes('postgres://u:…@db/x') && text.includes('kafka://u:…@k:9092/x'));
    assert.ok(!text.includes('hidden'));
  });

  test('tells why the server is not ready', async (t) => {
    const readiness = () => ({ ready: false, reasons: ['the disk is full'] });
    const { ask: read } = await startReadingApp(t, { readiness });
    const { status, body } = await read('/health');
    assert.equal(status, 200);
    const { status: word, reasons } = body as Health;
    assert.deepEqual([word, reasons], ['not ready', ['the disk is full']]);
  });

  test('still responds when the store does not', async (t) => {
    const metricsBuffer = allocateMetrics(1);
    metricsWriter(metricsBuffer, 0).inc(METRIC.dead_letters, 3);
    metricsWriter(metricsBuffer, 0).set(METRIC.log_missing_records, 2);
    const { store } = cannedStore('nobody/development');
    const gone = () => Promise.reject(new StoreUnavailableError('the disk is gone'));
    const { ask: read } = await startReadingApp(t, {
      metricsBuffer,
      store: { ...store, deadLetters: gone, ledger: gone },
    });
    const { status, body } = await read('/health');
    const { dead_letters: failed, log_missing_records: missing } = body as Health;
    assert.deepEqual([status, failed, missing], [200, 3, 2]);
  });

  test('is for those with a key or a session', async (t) => {
    const { ask: read, makeKey } = await startReadingApp(t);
    assert.equal((await read('/health', { key: null })).status, 401);
    assert.equal((await read('/health', { key: await makeKey({ kind: 'publishable' }) })).status, 403);
    const { ask: browse, join } = await startMemberApp(t);
    const { cookie } = await join('ada@example.com');
    const headers = { 'sluice-environment': 'production' };
    assert.equal((await browse('GET', '/health', { cookie, headers })).status, 200);
    assert.equal((await browse('GET', '/health', { headers })).status, 401);
  });
});

suite('The health of a running server', () => {
  const env = { SLUICE_LOG_LEVEL: 'info', SLUICE_BACKLOG_MAX: '512MB' };
  const server = useServer({ env, args: ['--shutdown', '3s'] });

  test('has the settings in effect as the command shows them, and where each came from', async () => {
    const headers = { authorization: `Bearer ${server().key}` };
    const { settings, disk_free_bytes: free, edges } = (await ask(server(), '/health', { headers })).body as Health;
    const given = { ...env, PORT: '0', SLUICE_DATA: server().dataFolder, ...TEST_SETTINGS };
    const { stdout } = await runSluice(['config', '--json', '--shutdown', '3s'], given);
    const shown = JSON.parse(stdout) as { env: string; value: string; source: string; description: string }[];
    assert.deepEqual(
      settings.map(({ name, value, source, description }) => ({ env: name, value, source, description })),
      shown.map(({ env: name, value, source, description }) => ({ env: name, value, source, description })),
    );
    const rowOf = (name: string): (string | undefined)[] => {
      const row = settings.find((setting) => setting.name === name);
      return [row?.value, row?.default, row?.source];
    };
    assert.deepEqual(rowOf('SLUICE_BACKLOG_MAX'), ['512MB', '4GB', 'environment']);
    assert.deepEqual(rowOf('SLUICE_SHUTDOWN'), ['3s', '25s', 'flag']);
    assert.deepEqual(rowOf('SLUICE_EDGES'), ['1', '1', 'default']);
    assert.ok((free as number) > 0);
    assert.equal(edges, 1);
  });

  test('counts requests that were rejected for their key or body, by status', async () => {
    const headers = { authorization: `Bearer ${server().key}`, 'content-type': 'application/json' };
    const requests = async (): Promise<unknown> =>
      ((await ask(server(), '/health', { headers })).body as Health)['requests'];
    assert.deepEqual(await requests(), []);
    const send = async (body: string, more: Record<string, string> = {}): Promise<number> =>
      (await ask(server(), '/ingest/events', { method: 'POST', headers: { ...headers, ...more }, body })).status;
    assert.equal(await send('{"users":[]}', { authorization: 'Bearer sk_dev_nobody' }), 401);
    assert.equal(await send('{"users":'), 400);
    assert.equal(await send('{'), 400);
    assert.deepEqual(await requests(), [
      { status: 400, requests: 2 },
      { status: 401, requests: 1 },
    ]);
  });
});
