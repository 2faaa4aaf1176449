/**
 * Settings: defaults, units, precedence, and that every mistake is reported, all at once, in words.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { enableCompileCache, getCompileCacheDir } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import * as fc from 'fast-check';
import {
  describeConfig,
  type Env,
  formatSetting,
  loadConfig,
  SETTING_NAMES,
  SETTINGS,
  shareCompileCache,
} from '../../src/config/config.ts';
import { FOREVER_MS, parseDurationMs, withoutSecrets } from '../../src/config/values.ts';
import { OperatorError } from '../../src/errors.ts';

const MB = 1_048_576;

function load(env: Env, ...args: string[]) {
  return loadConfig({ env, args }).config;
}

function mistakes(env: Env, ...args: string[]): string[] {
  try {
    loadConfig({ env, args });
  } catch (error) {
    assert.ok(error instanceof OperatorError);
    return error.message
      .split('\n')
      .filter((line) => line.startsWith('  - '))
      .map((line) => line.slice(4));
  }
  return [];
}

test('with nothing set, every setting has its default', () => {
  assert.deepEqual(load({}), {
    port: 8_080,
    host: '127.0.0.1',
    publicUrl: '',
    trustedProxies: '',
    dataFolder: './data',
    storeUrl: '',
    logUrl: '',
    role: 'all',
    storeConnections: 10,
    storeTimeoutMs: 30_000,
    environment: 'any',
    edges: 1,
    edgeServers: 1,
    inFlightBytesMax: 64 * MB,
    connectionsMax: 0,
    diskFreeBytesMin: 256 * MB,
    logSegmentBytes: 64 * MB,
    logRetentionMs: 604_800_000,
    backlogBytesMax: 4_096 * MB,
    eventRetentionMs: FOREVER_MS,
    traceRetentionMs: 30 * 86_400_000,
    rejectionRetentionMs: 604_800_000,
    rejectionBytesMax: 256 * MB,
    clockJumpMsMax: 43_200_000,
    clockGapMsMax: 180 * 86_400_000,
    defaultCountry: '',
    junkValues: '',
    logLevel: 'info',
    drainMs: 5_000,
    shutdownMs: 25_000,
  });
});

test('every setting can be given in the environment', () => {
  const env = {
    PORT: '0',
    HOST: '::1',
    SLUICE_PUBLIC_URL: 'HTTPS://Sluice.Example:443/',
    SLUICE_DATA: '/var/lib/sluice',
    STORE_URL: 'postgres://sluice:hidden@db.example/sluice',
    LOG_URL: 'kafka://one.example:9092,two.example:9092/sluice-events?replication=3',
    SLUICE_ROLE: 'edge',
    SLUICE_STORE_CONNECTIONS: '25',
    SLUICE_STORE_TIMEOUT: '1m',
    SLUICE_ENVIRONMENT: 'production',
    SLUICE_EDGES: '4',
    SLUICE_EDGE_SERVERS: '3',
    SLUICE_IN_FLIGHT_BYTES: '1GB',
    SLUICE_TRUSTED_PROXIES: 'loopback, 10.0.0.0/8',
    SLUICE_CONNECTIONS_MAX: '20000',
    SLUICE_DISK_FREE_MIN: '0',
    SLUICE_LOG_SEGMENT: '1MB',
    SLUICE_LOG_RETENTION: '12h',
    SLUICE_BACKLOG_MAX: '2GB',
    SLUICE_EVENT_RETENTION: '90d',
    SLUICE_TRACE_RETENTION: 'Forever',
    SLUICE_REJECTION_RETENTION: '1d',
    SLUICE_REJECTION_BYTES: '1MB',
    SLUICE_CLOCK_JUMP_MAX: '1h',
    SLUICE_CLOCK_GAP_MAX: 'forever',
    SLUICE_DEFAULT_COUNTRY: 'de',
    SLUICE_JUNK_VALUES: 'test, dummy',
    SLUICE_LOG_LEVEL: 'warn',
    SLUICE_DRAIN: '10s',
    SLUICE_SHUTDOWN: '500ms',
  };
  assert.deepEqual(load(env), {
    port: 0,
    host: '::1',
    publicUrl: 'https://sluice.example',
    trustedProxies: 'loopback, 10.0.0.0/8',
    dataFolder: '/var/lib/sluice',
    storeUrl: 'postgres://sluice:hidden@db.example/sluice',
    logUrl: 'kafka://one.example:9092,two.example:9092/sluice-events?replication=3',
    role: 'edge',
    storeConnections: 25,
    storeTimeoutMs: 60_000,
    environment: 'production',
    edges: 4,
    edgeServers: 3,
    inFlightBytesMax: 1_024 * MB,
    connectionsMax: 20_000,
    diskFreeBytesMin: 0,
    logSegmentBytes: MB,
    logRetentionMs: 43_200_000,
    backlogBytesMax: 2_048 * MB,
    eventRetentionMs: 90 * 86_400_000,
    traceRetentionMs: FOREVER_MS,
    rejectionRetentionMs: 86_400_000,
    rejectionBytesMax: MB,
    clockJumpMsMax: 3_600_000,
    clockGapMsMax: FOREVER_MS,
    defaultCountry: 'DE',
    junkValues: 'test, dummy',
    logLevel: 'warn',
    drainMs: 10_000,
    shutdownMs: 500,
  });
  assert.equal(Object.keys(env).length, SETTING_NAMES.length);
});

test('every setting can be given as a flag, with a space or an equals sign', () => {
  for (const name of SETTING_NAMES) {
    const { flag, env } = SETTINGS[name];
    const text = formatSetting(name, SETTINGS[name].default);
    for (const args of [[`--${flag}`, text], [`--${flag}=${text}`]]) {
      const { config, sources } = loadConfig({ env: { [env]: 'nonsense that the flag overrides' }, args });
      assert.equal(config[name], SETTINGS[name].default);
      assert.equal(sources[name], 'flag');
    }
  }
});

test('a flag wins over the environment, the environment over the default', () => {
  const { config, sources } = loadConfig({ env: { PORT: '1', HOST: 'localhost' }, args: ['--port', '2'] });
  assert.equal(config.port, 2);
  assert.equal(config.host, 'localhost');
  assert.deepEqual([sources.port, sources.host, sources.edges], ['flag', 'environment', 'default']);
});

test('a flag given twice counts as given last', () => {
  assert.equal(load({}, '--port', '1', '--port=2').port, 2);
});

test('a variable that is set to nothing counts as not set', () => {
  const { config, sources } = loadConfig({ env: { PORT: '', SLUICE_EDGES: '' }, args: [] });
  assert.equal(config.port, 8_080);
  assert.equal(sources.edges, 'default');
});

test('a variable with an extra prefix is reported', () => {
  assert.deepEqual(mistakes({ SLUICE_PORT: '80' }), [
    'unknown environment variable SLUICE_PORT: it is called PORT alone',
  ]);
});

test('variables of other programs are none of our business', () => {
  assert.deepEqual(mistakes({ PATH: '/bin', NODE_ENV: 'x', MY_SLUICE_DATA: 'y' }), []);
});

const SIZES: [string, number][] = [
  ['33554432', 32 * MB],
  ['32MB', 32 * MB],
  ['32 mb', 32 * MB],
  ['32MiB', 32 * MB],
  ['32768kB', 32 * MB],
  ['32768KB', 32 * MB],
  ['33554432B', 32 * MB],
  ['1.5GB', 1_536 * MB],
];
for (const [text, bytes] of SIZES) {
  test(`the size ${text} is ${bytes} bytes`, () => {
    assert.equal(load({ SLUICE_IN_FLIGHT_BYTES: text }).inFlightBytesMax, bytes);
  });
}

for (const text of [
  '',
  '-1MB',
  '16',
  '27.9MB',
  '64M',
  '64TB',
  'MB',
  '1e9',
  '0x1000000',
  'Infinity',
  '64MB!',
  '99999999GB',
]) {
  test(`"${text}" is no size for bodies in flight`, () => {
    const [mistake, ...others] = mistakes({}, `--in-flight-bytes=${text}`);
    assert.equal(
      mistake,
      `--in-flight-bytes is "${text}"; expected a size of 28MB or more, such as 64MB (units B, kB, MB, GB; 1kB is 1024 bytes)`,
    );
    assert.deepEqual(others, []);
  });
}

const TIMES: [string, number | undefined][] = [
  ['0', 0],
  ['0s', 0],
  ['250ms', 250],
  ['30s', 30_000],
  ['5m', 300_000],
  ['1.5h', 5_400_000],
  ['7d', 604_800_000],
  ['7 D', 604_800_000],
  ['30', undefined],
  ['-1s', undefined],
  ['1w', undefined],
  ['s', undefined],
  ['', undefined],
  ['1s1s', undefined],
  ['1e300d', undefined],
  ['999999999999d', undefined],
];
for (const [text, ms] of TIMES) {
  test(`the time "${text}" is ${ms === undefined ? 'not understood' : `${ms} ms`}`, () => {
    assert.equal(parseDurationMs(text), ms);
  });
}

const REFUSED: [string, string[]][] = [
  ['port', ['-1', '65536', '80.5', 'http', '8080x', '0x50', '1e3', ' ']],
  ['host', ['', 'localhost:8080', 'http://localhost', 'a b', '[::1]', '-x']],
  [
    'public-url',
    [
      'sluice.example',
      'ftp://sluice.example',
      'https://sluice.example/dashboard',
      'https://a@sluice.example',
      'https://sluice.example?x',
      'https://',
      'https://a b',
    ],
  ],
  ['data', ['', '  ']],
  ['environment', ['prod', 'staging', '']],
  ['edges', ['0', '65', '1.5', 'all']],
  ['role', ['', 'edges', 'everything']],
  ['store-connections', ['1', '1001', 'many']],
  ['store-timeout', ['999ms', '2h', '30']],
  ['disk-free-min', ['-1', 'lots']],
  ['log-segment', ['1023kB', '1']],
  ['log-retention', ['7', 'for ever']],
  ['clock-jump-max', ['0', '59s', 'never']],
  ['default-country', ['DEU', 'D', '49']],
  ['log-level', ['trace', 'loud']],
  ['drain', ['601s', '11m', '5', 'never']],
  ['shutdown', ['31s', '30001ms', '1h', '10']],
];
for (const [flag, texts] of REFUSED) {
  test(`--${flag} refuses ${texts.map((text) => `"${text}"`).join(', ')}, naming itself and what it expects`, () => {
    for (const text of texts) {
      const [mistake = '', ...others] = mistakes({}, `--${flag}=${text}`);
      assert.deepEqual(others, []);
      assert.ok(mistake.startsWith(`--${flag} is "${text}"; expected `), mistake);
    }
  });
}

test('what is at the edge of a range is taken', () => {
  assert.equal(load({}, '--port', '65535').port, 65_535);
  assert.equal(load({}, '--edges', '64', '--in-flight-bytes', '2GB').edges, 64);
  assert.equal(load({}, '--shutdown', '30s').shutdownMs, 30_000);
  assert.equal(load({}, '--log-segment', '1MB').logSegmentBytes, MB);
  assert.equal(load({}, '--log-retention', '0').logRetentionMs, 0);
});

test('all mistakes are reported at once, each with its setting, the value given and what is expected', () => {
  const env = { PORT: 'http', SLUICE_EDGES: '100', SLUICE_DTA: '/x', SLUICE_SHUTDOWN: '5m' };
  assert.deepEqual(
    mistakes(env, '--hots', 'x', '--log-level', 'loud', '--data', '--log-segment=1', 'stray', '-p', '80'),
    [
      'unknown flag --hots; did you mean --host?',
      '--data needs a value',
      'unknown flag -p',
      'unexpected argument "stray"',
      'PORT is "http"; expected a whole number from 0 to 65535',
      'SLUICE_EDGES is "100"; expected a whole number from 1 to 64',
      '--log-segment is "1"; expected a size of 1MB or more, such as 64MB (units B, kB, MB, GB; 1kB is 1024 bytes)',
      '--log-level is "loud"; expected one of fatal, error, warn, info, silent',
      'SLUICE_SHUTDOWN is "5m"; expected a time from 0 to 30s, such as 30s (units ms, s, m, h, d)',
      'unknown environment variable SLUICE_DTA; did you mean SLUICE_DATA?',
    ],
  );
});

test('variables that are no misspelt setting are left alone: they belong to clients or to Kubernetes', () => {
  const env = {
    SLUICE_KEY: 'sk_dev_x',
    SLUICE_URL: 'http://x',
    SLUICE_SERVICE_HOST: '10.0.0.1',
    SLUICE_PORT: 'tcp://x',
  };
  assert.deepEqual(mistakes(env), []);
});

test('every edge has room for the largest body, or the server refuses to start', () => {
  for (const [edges, megabytes] of [
    ['2', 64],
    ['3', 84],
    ['64', 1_792],
  ] as const) {
    assert.equal(load({}, '--edges', edges).inFlightBytesMax, megabytes * MB);
  }
  assert.deepEqual(mistakes({ SLUICE_IN_FLIGHT_BYTES: '64MB' }, '--edges', '4'), [
    'SLUICE_IN_FLIGHT_BYTES is 64MB, but 4 edges need at least 112MB; set it, or use fewer edges',
  ]);
  assert.equal(load({}, '--edges', '4', '--in-flight-bytes', '112MB').inFlightBytesMax, 112 * MB);
});

const STORE_URL = 'postgres://sluice:hidden@db.example/sluice';
const LOG_URL = 'kafka://one.example:9092/sluice';

test('a log that is shared needs a store that is shared', () => {
  assert.deepEqual(mistakes({ LOG_URL }), [
    'LOG_URL is set, but STORE_URL is not: who shares a log has to share a store; set STORE_URL=postgres://… too, or leave LOG_URL out',
  ]);
  assert.equal(load({ STORE_URL }).logUrl, '');
  assert.equal(load({ STORE_URL, LOG_URL }).role, 'all');
});

for (const role of ['edge', 'processor', 'api']) {
  test(`the role ${role} is refused without both PostgreSQL and Kafka, and what is missing is named`, () => {
    const missing = (env: Env): string =>
      /but (.+?) (?:is|are) not set/.exec(mistakes(env, '--role', role)[0] ?? '')?.[1] ?? 'nothing';
    assert.equal(missing({}), 'STORE_URL and LOG_URL');
    assert.equal(missing({ STORE_URL }), 'LOG_URL');
    assert.equal(missing({ LOG_URL }), 'STORE_URL');
    assert.equal(load({ STORE_URL, LOG_URL }, '--role', role).role, role);
  });
}

test('addresses of a store and a log are checked, and one that is refused is not repeated: it may hold a password', () => {
  const stores = [
    'mysql://a:hidden@b/c',
    'postgres://a:hidden@b',
    'postgres://a:hidden@b/',
    'hidden',
    'postgres://a b/c',
  ];
  for (const text of stores) {
    assert.deepEqual(mistakes({ STORE_URL: text }), [
      'STORE_URL cannot be used; expected the address of a database, such as postgres://user:password@host:5432/sluice (special characters of the password percent-encoded: / as %2F)',
    ]);
  }
  const logs = [
    'kafka://a:hidden@b:9092',
    'kafka:///hidden',
    'http://hidden/x',
    'kafka://a b/hidden',
    'kafka://a:9092,/hidden',
  ];
  for (const text of logs) {
    const [mistake = '', ...others] = mistakes({ STORE_URL }, `--log-url=${text}`);
    assert.deepEqual(others, []);
    assert.match(mistake, /^--log-url cannot be used; expected the address of a topic, such as kafka:/);
    assert.doesNotMatch(mistake, /hidden/);
  }
});

const SHOWN: [string, string][] = [
  ['postgres://sluice:hidden@db/sluice', 'postgres://sluice:…@db/sluice'],
  ['postgres://sluice@db:5432/sluice?sslmode=require', 'postgres://sluice@db:5432/sluice?sslmode=require'],
  ['postgres://db/sluice', 'postgres://db/sluice'],
  ['postgres://u:hid@den@db/sluice', 'postgres://u:…@db/sluice'],
  ['postgres://u:hid/den@db/sluice', 'postgres://u:…@db/sluice'],
  ['postgres://u:hid?den@db/sluice?sslmode=x', 'postgres://u:…@db/sluice?sslmode=x'],
  ['postgres://u:hid:den@db/sluice', 'postgres://u:…@db/sluice'],
  ['postgres://db/sluice?user=u&password=hidden', 'postgres://db/sluice?user=u&password=…'],
  ['not an address: a@b', 'not an address: a@b'],
  ['kafka://u:hidden@a:9092,b:9092/t?tls=true', 'kafka://u:…@a:9092,b:9092/t?tls=true'],
];
for (const [url, shown] of SHOWN) {
  test(`of an address no password is shown, as in ${shown}`, () => assert.equal(withoutSecrets(url), shown));
}

test('an address that stands where none is expected is reported without its password', () => {
  assert.deepEqual(mistakes({}, 'postgres://u:hidden@db/x'), ['unexpected argument "postgres://u:…@db/x"']);
});

test('what describes the settings has no password in it', () => {
  const { config, sources } = loadConfig({ env: { STORE_URL, LOG_URL: 'kafka://u:hidden@a:9092/t' }, args: [] });
  const rows = describeConfig(config, sources);
  assert.doesNotMatch(JSON.stringify(rows), /hidden/);
  assert.equal(rows.find(({ setting }) => setting === 'storeUrl')?.value, 'postgres://sluice:…@db.example/sluice');
});

test('the message lists all mistakes and says where to read on', () => {
  assert.throws(
    () => load({ PORT: 'x', SLUICE_EDGES: '0' }),
    /^OperatorError: Invalid settings:\n {2}- PORT is "x".*\n {2}- SLUICE_EDGES is "0".*sluice help serve$/s,
  );
  assert.throws(() => load({ PORT: 'x' }), /^OperatorError: Invalid settings:\n {2}- PORT is "x".*sluice help serve$/s);
});

test('a description names each setting once, its value as one would write it, and where it came from', () => {
  const { config, sources } = loadConfig({
    env: { SLUICE_LOG_RETENTION: '36h' },
    args: ['--in-flight-bytes', '28673kB'],
  });
  const rows = describeConfig(config, sources);
  assert.deepEqual(
    rows.map((row) => row.setting),
    SETTING_NAMES,
  );
  const row = (name: string) => rows.find(({ setting }) => setting === name);
  assert.deepEqual([row('inFlightBytesMax')?.value, row('inFlightBytesMax')?.source], ['28673kB', 'flag']);
  assert.deepEqual([row('logRetentionMs')?.value, row('logRetentionMs')?.source], ['36h', 'environment']);
  assert.deepEqual(row('port'), {
    setting: 'port',
    flag: '--port',
    env: 'PORT',
    value: '8080',
    source: 'default',
    description: SETTINGS.port.description,
  });
});

test('every size and time reads back as it was shown', () => {
  fc.assert(
    fc.property(fc.integer({ min: 28 * MB, max: Number.MAX_SAFE_INTEGER }), fc.nat(30_000), (bytes, ms) => {
      const config = load({
        SLUICE_IN_FLIGHT_BYTES: formatSetting('inFlightBytesMax', bytes),
        SLUICE_SHUTDOWN: formatSetting('shutdownMs', ms),
      });
      assert.deepEqual([config.inFlightBytesMax, config.shutdownMs], [bytes, ms]);
    }),
  );
});

test('each description is one sentence', () => {
  for (const name of SETTING_NAMES) assert.match(SETTINGS[name].description, /^[A-Z]([^.]|\.\d)*\.$/, name);
});

test('the number of connections is a number, or auto', () => {
  assert.equal(load({ SLUICE_CONNECTIONS_MAX: 'auto' }).connectionsMax, 0);
  assert.equal(formatSetting('connectionsMax', 0), 'auto');
  assert.deepEqual(mistakes({ SLUICE_CONNECTIONS_MAX: '0' }), [
    'SLUICE_CONNECTIONS_MAX is "0"; expected a whole number from 1 to 1000000, or "auto"',
  ]);
});

test('threads load compiled code from where the process has it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-'));
  try {
    enableCompileCache(folder);
    // Set by the runner of the tests, for itself.
    delete process.env['NODE_COMPILE_CACHE'];
    shareCompileCache();
    const code = `require('node:worker_threads').parentPort.postMessage(require('node:module').getCompileCacheDir())`;
    const [cache] = (await once(new Worker(code, { eval: true }), 'message')) as [unknown];
    assert.equal(cache, getCompileCacheDir());
  } finally {
    rmSync(folder, { recursive: true });
  }
});
