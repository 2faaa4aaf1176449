/** A Kafka that requires TLS and a login: each mechanism, and the errors when something is wrong or not allowed. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { AclOperations, AclPermissionTypes, Admin, ResourcePatternTypes, ResourceTypes } from '@platformatic/kafka';
import { openKafkaLogAppender } from '../../../src/backends/kafka/log.ts';
import { LogForbiddenError } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { eventually } from '../../server.ts';
import { ensureKafkaJars } from '../../servers/kafka-jars.ts';
import { KAFKA_LOGGING, whyNoKafka } from '../../servers/kafka.ts';
import { freePort, makeServerFolder, ready, type ServerFolder } from '../../servers/processes.ts';
import { findTool } from '../../tools.ts';
import { appenderOf, groupReaderOf, KEPT_MS, readerOf } from './log-on-kafka.ts';

const run = promisify(execFile);
const openssl = findTool('openssl') ?? '';
const java = findTool('java') ?? '';
const READY_MS_MAX = 90_000;
const CLUSTER_ID = 'AAAAAAAAAAAAAAAAAAAAAQ';

interface SecureKafka {
  readonly broker: string;
  /** The listener without login, where everything is allowed. */
  readonly inside: string;
  readonly caFile: string;
}

/** One broker that requires TLS and a login: ada by PLAIN, bob and eve by SCRAM. */
async function secureKafka(folder: ServerFolder): Promise<SecureKafka> {
  const at = (name: string): string => join(folder.path, name);
  const [clients, inside, controller] = [await freePort(), await freePort(), await freePort()];
  const newKey = ['-newkey', 'rsa:2048', '-nodes', '-keyout'];
  await run(openssl, ['req', '-x509', ...newKey, at('ca.key'), '-out', at('ca.pem'), '-days', '2', '-subj', '/CN=ca']);
  const signedBy = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-addext', 'subjectAltName=IP:127.0.0.1'];
  const server = ['req', '-x509', ...newKey, at('server.key'), '-out', at('server.pem'), '-days', '2'];
  await run(openssl, [...server, '-subj', '/CN=server', ...signedBy]);
  const store = ['pkcs12', '-export', '-in', at('server.pem'), '-inkey', at('server.key'), '-out', at('server.p12')];
  await run(openssl, [...store, '-passout', 'pass:changeit']);
  const security = 'org.apache.kafka.common.security';
  const scram = `${security}.scram.ScramLoginModule required;`;
  const settings = {
    'process.roles': 'broker,controller',
    'node.id': 1,
    'controller.quorum.voters': `1@127.0.0.1:${controller}`,
    listeners: `CLIENTS://127.0.0.1:${clients},INSIDE://127.0.0.1:${inside},CONTROLLER://127.0.0.1:${controller}`,
    'listener.security.protocol.map': 'CLIENTS:SASL_SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'inter.broker.listener.name': 'INSIDE',
    'controller.listener.names': 'CONTROLLER',
    'log.dirs': at('data'),
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'allow.everyone.if.no.acl.found': true,
    'super.users': 'User:ANONYMOUS',
    'offsets.topic.replication.factor': 1,
    'log.cleaner.dedupe.buffer.size': 4 * 1024 * 1024,
    'ssl.keystore.location': at('server.p12'),
    'ssl.keystore.password': 'changeit',
    'ssl.keystore.type': 'PKCS12',
    'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
    'listener.name.clients.plain.sasl.jaas.config': `${security}.plain.PlainLoginModule required user_ada="p@ss:/word";`,
    'listener.name.clients.scram-sha-256.sasl.jaas.config': scram,
    'listener.name.clients.scram-sha-512.sasl.jaas.config': scram,
  };
  const file = at('broker.properties');
  writeFileSync(
    file,
    Object.entries(settings)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(''),
  );
  const jars = join(await ensureKafkaJars((line) => console.error(line)), '*');
  const logins = ['SCRAM-SHA-512=[name=bob,password=secret-512]', 'SCRAM-SHA-256=[name=eve,password=secret-256]'];
  const format = ['format', '-t', CLUSTER_ID, '-c', file, ...logins.flatMap((login) => ['--add-scram', login])];
  await run(java, ['-cp', jars, 'kafka.tools.StorageTool', ...format]);
  writeFileSync(at('log4j2.properties'), KAFKA_LOGGING);
  const options = ['-Xmx256m', '-XX:TieredStopAtLevel=1', `-Dlog4j2.configurationFile=${at('log4j2.properties')}`];
  const broker = folder.run('broker', java, [...options, '-cp', jars, 'kafka.Kafka', file]);
  await ready('Kafka with logins', broker, READY_MS_MAX, async () => broker.hasSaid('Kafka Server started'));
  return { broker: `127.0.0.1:${clients}`, inside: `127.0.0.1:${inside}`, caFile: at('ca.pem') };
}

const skip = whyNoKafka('own') || (openssl === '' ? 'needs openssl' : false);

suite('A Kafka that requires TLS and a login', { skip, timeout: 180_000 }, () => {
  let folder: ServerFolder;
  let broker: string;
  let inside: string;
  let ca: string;
  before(async () => {
    folder = makeServerFolder('kafka-login', 'SIGKILL');
    const secure = await secureKafka(folder);
    ({ broker, inside } = secure);
    ca = encodeURIComponent(secure.caFile);
  });
  after(() => folder.remove());

  for (const [mechanism, login] of [
    ['plain', 'ada:p%40ss%3A%2Fword'],
    ['scram-sha-256', 'eve:secret-256'],
    ['scram-sha-512', 'bob:secret-512'],
  ] as const) {
    test(`${mechanism}: written and read`, async (context) => {
      const url = `kafka://${login}@${broker}/events-${mechanism}?replication=1&partitions=1&tls=true&ca=${ca}&sasl=${mechanism}`;
      const appender = await appenderOf(context, { url });
      await appender.append(entry({ traceId: mechanism }));
      const reader = await readerOf(context, { url });
      assert.deepEqual(
        (await readAll(reader, 0)).map(({ traceId }) => traceId),
        [mechanism],
      );
    });
  }

  test('a user who may not delete records: one warning, and offsets are committed anyway', async (context) => {
    const topic = 'events-kept';
    const url = `kafka://eve:secret-256@${broker}/${topic}?replication=1&partitions=2&tls=true&ca=${ca}&sasl=scram-sha-256`;
    for (const partition of [0, 1]) {
      const appender = await appenderOf(context, { url, partitionOf: () => partition });
      await appender.append(entry({ traceId: `trace-${partition}`, receivedAt: 1_000 }));
    }
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: [inside] });
    context.after(() => admin.close());
    const onTopic = {
      resourceType: ResourceTypes.TOPIC,
      resourceName: topic,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      host: '*',
    };
    const allowed = { principal: 'User:*', operation: AclOperations.ALL, permissionType: AclPermissionTypes.ALLOW };
    const denied = { principal: 'User:eve', operation: AclOperations.DELETE, permissionType: AclPermissionTypes.DENY };
    await admin.createAcls({
      creations: [
        { ...onTopic, ...allowed },
        { ...onTopic, ...denied },
      ],
    });
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    const reader = await groupReaderOf(context, { url, retentionMs: 2_000, now: () => 10_000, warn });
    await eventually('it has partitions', async () => (await reader.partitions()).length === 2);
    warnings.length = 0;
    for (const partition of [0, 1]) await reader.commit(partition, 1);
    assert.deepEqual([await reader.committed(0), await reader.committed(1)], [1, 1]);
    assert.equal(warnings.length, 1);
    assert.match(
      warnings[0] ?? '',
      /old records cannot be deleted.*\(TOPIC_AUTHORIZATION_FAILED\)\. Allow this user Delete on the topic/,
    );
  });

  test('a user who may not see the groups of all databases: nothing is deleted, one warning', async (context) => {
    const topic = 'events-shared';
    const url = `kafka://eve:secret-256@${broker}/${topic}?replication=1&partitions=1&tls=true&ca=${ca}&sasl=scram-sha-256`;
    const appender = await appenderOf(context, { url });
    for (let n = 0; n < 8; n++) await appender.append(entry({ traceId: `trace-${n}`, receivedAt: 1_000 + n }));
    const [ours, theirs] = [randomUUID(), randomUUID()];
    // It deletes nothing.
    const other = await groupReaderOf(context, { url: `kafka://${inside}/${topic}`, databaseId: theirs, now: () => 0 });
    await eventually('it has the partition', async () => (await other.partitions()).length === 1);
    await other.commit(0, 2);
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: [inside] });
    context.after(() => admin.close());
    const any = { host: '*', operation: AclOperations.ALL, permissionType: AclPermissionTypes.ALLOW };
    const onCluster = {
      ...any,
      resourceType: ResourceTypes.CLUSTER,
      resourceName: 'kafka-cluster',
      resourcePatternType: ResourcePatternTypes.LITERAL,
    };
    const prefix = `sluice.${topic}.`;
    const onGroups = {
      ...any,
      resourceType: ResourceTypes.GROUP,
      resourceName: prefix,
      resourcePatternType: ResourcePatternTypes.PREFIXED,
    };
    const eve = { principal: 'User:eve' };
    await admin.createAcls({
      creations: [
        // Who may describe the cluster sees all groups.
        { ...onCluster, principal: 'User:*' },
        { ...onCluster, ...eve, operation: AclOperations.DESCRIBE, permissionType: AclPermissionTypes.DENY },
        { ...onGroups, principal: 'User:bob' },
        { ...onGroups, ...eve, resourceName: prefix + ours, resourcePatternType: ResourcePatternTypes.LITERAL },
      ],
    });
    const first = async (): Promise<number> => (await other.beginnings()).get(0) ?? 0;
    const warnings: string[] = [];
    const commitSix = async (): Promise<void> => {
      warnings.length = 0;
      const warn = (message: string): void => void warnings.push(message);
      const settings = { url, databaseId: ours, retentionMs: 2_000, now: () => 10_000, warn };
      const reader = await groupReaderOf(context, settings);
      await eventually('it has the partition', async () => (await reader.partitions()).length === 1);
      warnings.length = 0;
      await reader.commit(0, 6);
      await reader.close();
    };
    await commitSix();
    assert.equal(await first(), 0);
    assert.equal(warnings.length, 1);
    assert.match(
      warnings[0] ?? '',
      /old records cannot be deleted.*Allow this user Describe on all consumer groups that begin with sluice\.events-shared\., /,
    );
    await admin.createAcls({ creations: [{ ...onGroups, ...eve, operation: AclOperations.DESCRIBE }] });
    await commitSix();
    assert.deepEqual([await first(), warnings], [2, []]);
  });

  test('a user whose right to write is revoked: the log is not writable, until it is given back', async (context) => {
    const topic = 'events-revoked';
    const url = `kafka://eve:secret-256@${broker}/${topic}?replication=1&partitions=1&tls=true&ca=${ca}&sasl=scram-sha-256`;
    const appender = await appenderOf(context, { url });
    await appender.append(entry());
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: [inside] });
    context.after(() => admin.close());
    const onTopic = {
      resourceType: ResourceTypes.TOPIC,
      resourceName: topic,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      host: '*',
    };
    const denied = {
      ...onTopic,
      principal: 'User:eve',
      operation: AclOperations.WRITE,
      permissionType: AclPermissionTypes.DENY,
    };
    await admin.createAcls({
      creations: [
        { ...onTopic, principal: 'User:*', operation: AclOperations.ALL, permissionType: AclPermissionTypes.ALLOW },
        denied,
      ],
    });
    await assert.rejects(appender.append(entry()), { name: 'LogUnavailableError', fatal: false });
    const problem = await eventually('it is known', () => appender.problem() ?? undefined);
    assert.match(problem, /lacks the right to write to the topic|not authorized|AUTHORIZATION_FAILED/i);
    const isKnown: boolean[] = [];
    for (let n = 0; n < 20; n++) {
      isKnown.push(appender.problem() !== null);
      await sleep(100);
    }
    assert.ok(!isKnown.includes(false), 'it stays known');
    assert.match(appender.problem() ?? '', /this user lacks the right to write to the topic \(Write\)$/);
    const late = await appenderOf(context, { url });
    await eventually('one that starts now says so without an append', () => late.problem() !== null);
    await admin.deleteAcls({ filters: [denied] });
    await eventually('it accepts data again', () => appender.problem() === null && late.problem() === null);
    await appender.append(entry());
  });

  test('the rights that docs/scaling.md lists are enough for an edge and a processor', async (context) => {
    const topic = 'events-rights';
    const path = `${broker}/${topic}?replication=1&partitions=1&tls=true&ca=${ca}`;
    const edge = `kafka://eve:secret-256@${path}&sasl=scram-sha-256`;
    const processor = `kafka://bob:secret-512@${path}&sasl=scram-sha-512`;
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: [inside] });
    context.after(() => admin.close());
    await readerOf(context, { url: `kafka://${inside}/${topic}?replication=1&partitions=1` });
    const literal = { resourcePatternType: ResourcePatternTypes.LITERAL, permissionType: AclPermissionTypes.ALLOW };
    const onTopic = { ...literal, resourceType: ResourceTypes.TOPIC, resourceName: topic, host: '*' };
    const { WRITE, READ, DELETE, DESCRIBE_CONFIGS } = AclOperations;
    await admin.createAcls({
      creations: [
        { ...onTopic, principal: 'User:eve', operation: WRITE },
        { ...onTopic, principal: 'User:eve', operation: DESCRIBE_CONFIGS },
        { ...onTopic, principal: 'User:bob', operation: READ },
        { ...onTopic, principal: 'User:bob', operation: DELETE },
        { ...onTopic, principal: 'User:bob', operation: DESCRIBE_CONFIGS },
        {
          ...onTopic,
          resourceType: ResourceTypes.GROUP,
          resourceName: `sluice.${topic}.`,
          resourcePatternType: ResourcePatternTypes.PREFIXED,
          principal: 'User:bob',
          operation: READ,
        },
      ],
    });
    const appender = await appenderOf(context, { url: edge });
    for (const traceId of ['one', 'two']) await appender.append(entry({ traceId, receivedAt: 1_000 }));
    await assert.rejects((await readerOf(context, { url: edge })).read(0, 0, 1), LogForbiddenError);
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    const settings = { url: processor, databaseId: randomUUID(), retentionMs: 2_000, now: () => 10_000 };
    const reader = await groupReaderOf(context, { ...settings, warn });
    await eventually('it has the partition', async () => (await reader.partitions()).length === 1);
    warnings.length = 0;
    assert.equal((await readAll(reader, 0)).length, 2);
    await reader.commit(0, 1);
    assert.deepEqual([(await reader.beginnings()).get(0), warnings], [1, []]);
  });

  const invalid: readonly (readonly [what: string, url: () => string, message: RegExp])[] = [
    [
      'a wrong password by PLAIN',
      () => `kafka://ada:secret-wrong@${broker}/events?ca=${ca}&sasl=plain`,
      /^Kafka rejected the login: .*Check LOG_URL\.$/,
    ],
    [
      'a wrong password by SCRAM',
      () => `kafka://bob:secret-wrong@${broker}/events?ca=${ca}&sasl=scram-sha-512`,
      /^Kafka rejected the login: .*Check LOG_URL\.$/,
    ],
    [
      'no login',
      () => `kafka://${broker}/events?ca=${ca}`,
      /^Kafka at \S+ cannot be used: .*\(.*do tls and sasl fit this port.*Check LOG_URL/,
    ],
    [
      'no TLS',
      () => `kafka://bob:secret-512@${broker}/events?sasl=scram-sha-512`,
      /^Kafka at \S+ cannot be used: .*\(.*do tls and sasl fit this port.*Check LOG_URL/,
    ],
    [
      'TLS where there is none',
      () => `kafka://bob:secret-512@${inside}/events?tls=true&sasl=scram-sha-512`,
      /^Kafka at \S+ cannot be used: .*\(does this port use TLS\?\).*Check LOG_URL/,
    ],
    [
      'an untrusted certificate',
      () => `kafka://bob:secret-512@${broker}/events?tls=true&sasl=scram-sha-512`,
      /^Kafka at \S+ cannot be used: .*certificate.*\(name the file of its authority with ca=FILE.*Check LOG_URL/,
    ],
  ];
  for (const [what, url, message] of invalid) {
    test(`${what}: an error that shows no password`, async () => {
      await assert.rejects(
        openKafkaLogAppender({ url: url(), retentionMs: KEPT_MS, openMsMax: 500 }),
        (error: Error) => {
          assert.equal(error.name, 'OperatorError');
          assert.match(error.message, message);
          assert.doesNotMatch(error.message, /secret/);
          return true;
        },
      );
    });
  }
});
