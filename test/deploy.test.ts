/**
 * The files that others run Sluice with agree with the program: settings and roles that there are, addresses that it
 * takes, probes on routes that it serves, more time to stop than it needs, and an Ingress and autoscalers that fit. Whether Docker and Kubernetes take them
 * is not shown here.
 */

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { PARTITIONS_DEFAULT } from '../src/backends/kafka/topic.ts';
import { parseKafkaUrl } from '../src/backends/kafka/url.ts';
import { readPostgresUrl } from '../src/backends/postgres/url.ts';
import { LIMITS, ROLES } from '../src/model.ts';
import { INGEST_PATH } from '../src/config/roles.ts';
import { SETTINGS } from '../src/config/settings.ts';
import { at, parseYaml, type Yaml } from './yaml.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const MANIFESTS = globSync('deploy/kubernetes/**/*.yaml', { cwd: ROOT }).sort();
const ALL = ['Dockerfile', 'compose.yaml', ...MANIFESTS];

const AUTOSCALING = 'deploy/kubernetes/components/processor-autoscaling';
const BODY_SIZE = 'nginx.ingress.kubernetes.io/proxy-body-size';

function deploymentOf(role: string): Yaml | undefined {
  return parseYaml(read(`deploy/kubernetes/${role}.yaml`)).find((one) => at(one, 'kind') === 'Deployment');
}

function found(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, group]) => group ?? '');
}

suite('The files to run it with', () => {
  for (const file of ALL) {
    test(`${file} sets nothing that is no setting`, () => {
      const known = new Set(Object.values(SETTINGS).map(({ env }): string => env));
      const named = found(read(file), /\b(SLUICE_[A-Z_]+|STORE_URL|LOG_URL)\b/g);
      assert.deepEqual(
        named.filter((name) => !known.has(name)),
        [],
      );
    });

    test(`${file} names roles that there are`, () => {
      const roles: readonly string[] = ROLES;
      for (const role of found(read(file), /"--role", "(\w+)"/g)) assert.ok(roles.includes(role), role);
    });

    test(`${file} has addresses that are understood`, () => {
      const text = read(file);
      for (const url of found(text, /^\s*STORE_URL: (\S+)$/gm)) readPostgresUrl(url);
      for (const url of found(text, /^\s*LOG_URL: (\S+)$/gm)) assert.ok(parseKafkaUrl(url).topic.length > 0);
    });
  }

  test('compose.yaml and the manifests run every role of its own', () => {
    const expected = ROLES.filter((role) => role !== 'all').sort();
    assert.deepEqual(found(read('compose.yaml'), /"--role", "(\w+)"/g).sort(), expected);
    assert.deepEqual(MANIFESTS.flatMap((file) => found(read(file), /"--role", "(\w+)"/g)).sort(), expected);
  });

  for (const role of ROLES.filter((one) => one !== 'all')) {
    test(`on Kubernetes the ${role} has probes, a disruption budget and no rights`, () => {
      const text = read(`deploy/kubernetes/${role}.yaml`);
      for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) assert.ok(text.includes(probe), probe);
      assert.deepEqual(new Set(found(text, /path: (\/\w+),/g)), new Set(['/livez', '/readyz']));
      assert.match(text, /kind: PodDisruptionBudget/);
      assert.match(text, /runAsNonRoot: true/);
    });

    test(`on Kubernetes the ${role} has time to leave, to drain and to stop`, () => {
      const pod = at(deploymentOf(role), 'spec', 'template', 'spec');
      const preStop = at(pod, 'containers', 0, 'lifecycle', 'preStop', 'exec', 'command') as string[] | undefined;
      const drains = role !== 'processor';
      assert.deepEqual(preStop, drains ? ['sleep', '5'] : undefined);
      const drainMs = drains ? SETTINGS.drainMs.default : 0;
      const needed = Number(preStop?.[1] ?? 0) + (drainMs + SETTINGS.shutdownMs.default) / 1000;
      assert.ok((at(pod, 'terminationGracePeriodSeconds') as number) >= needed + 5);
    });
  }

  test('the defaults stop a server within 30 s, and Compose gives it longer', () => {
    const seconds = (SETTINGS.drainMs.default + SETTINGS.shutdownMs.default) / 1000;
    assert.ok(seconds <= 30);
    const [grace] = found(read('compose.yaml'), /^x-sluice:[^]*?stop_grace_period: (\d+)s/gm).map(Number);
    assert.ok((grace ?? 0) >= seconds + 5);
    const [docker] = found(read('Dockerfile'), /docker stop --time (\d+)/g).map(Number);
    assert.ok((docker ?? 0) >= seconds + 5);
  });

  test('every manifest is YAML, and the kustomization names those of its folder', () => {
    for (const file of MANIFESTS) assert.ok(parseYaml(read(file)).length > 0, file);
    const [kustomization] = parseYaml(read('deploy/kubernetes/kustomization.yaml'));
    const files = globSync('*.yaml', { cwd: join(ROOT, 'deploy/kubernetes') }).filter(
      (one) => one !== 'kustomization.yaml',
    );
    assert.deepEqual((at(kustomization, 'resources') as string[]).toSorted(), files.toSorted());
    // Without KEDA, the base is applied without its kinds.
    assert.equal(at(kustomization, 'components'), undefined);
    assert.match(
      read('deploy/kubernetes/kustomization.yaml'),
      /^# components:\n#   - components\/processor-autoscaling$/m,
    );
  });

  test('the Ingress sends /ingest to the edges and the rest to the API, by services and ports that there are', () => {
    const [ingress] = parseYaml(read('deploy/kubernetes/ingress.yaml'));
    const paths = at(ingress, 'spec', 'rules', 0, 'http', 'paths') as Yaml[];
    assert.deepEqual(
      paths.map((path) => [at(path, 'path'), at(path, 'pathType'), at(path, 'backend', 'service', 'name')]),
      [
        ['/ingest', 'Prefix', 'sluice-edge'],
        ['/', 'Prefix', 'sluice-api'],
      ],
    );
    assert.ok(INGEST_PATH.startsWith('/ingest/'));
    for (const path of paths) {
      const name = at(path, 'backend', 'service', 'name') as string;
      const service = parseYaml(read(`deploy/kubernetes/${name.replace('sluice-', '')}.yaml`)).find(
        (one) => at(one, 'kind') === 'Service',
      );
      assert.equal(at(service, 'metadata', 'name'), name);
      assert.equal(at(service, 'spec', 'ports', 0, 'name'), at(path, 'backend', 'service', 'port', 'name'));
    }
    const megabytes = Number.parseInt(at(ingress, 'metadata', 'annotations', BODY_SIZE) as string, 10);
    assert.ok(megabytes * 1024 * 1024 > LIMITS.bodyBytesMax, 'Sluice itself has to refuse what is too large');
  });

  test('edges and processors are scaled: those by CPU, these by lag and up to the number of partitions', () => {
    const autoscaler = parseYaml(read('deploy/kubernetes/edge.yaml')).find(
      (one) => at(one, 'kind') === 'HorizontalPodAutoscaler',
    );
    assert.equal(at(autoscaler, 'spec', 'scaleTargetRef', 'name'), at(deploymentOf('edge'), 'metadata', 'name'));
    const [scaled] = parseYaml(read(`${AUTOSCALING}/scaled-object.yaml`));
    const processor = deploymentOf('processor');
    assert.equal(at(scaled, 'spec', 'scaleTargetRef', 'name'), at(processor, 'metadata', 'name'));
    assert.equal(at(scaled, 'spec', 'maxReplicaCount'), PARTITIONS_DEFAULT);
    const [component] = parseYaml(read(`${AUTOSCALING}/kustomization.yaml`));
    assert.equal(at(component, 'kind'), 'Component');
    assert.equal(at(component, 'patches', 0, 'target', 'name'), at(processor, 'metadata', 'name'));
    // An apply sets no number where an autoscaler does.
    assert.match(at(component, 'patches', 0, 'patch') as string, /op: remove\n {2}path: \/spec\/replicas/);
    assert.equal(at(deploymentOf('edge'), 'spec', 'replicas'), undefined);
  });

  test('no document starts a server with npx, which would leave it behind at SIGTERM', () => {
    for (const file of ['README.md', 'compose.yaml', ...globSync('docs/**/*.md', { cwd: ROOT })]) {
      assert.doesNotMatch(read(file), /npx sluice serve/, file);
    }
    assert.match(read('docs/scaling.md'), /^ *node bin\/sluice\.js serve --role edge/m);
  });

  test('the image has the Node that the package asks for, no root, and a health check', () => {
    const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
    const text = read('Dockerfile');
    const major = /\d+/.exec(engines.node)?.[0];
    assert.deepEqual(new Set(found(text, /^FROM node:(\d+)-slim/gm)), new Set([major]));
    assert.match(text, /^USER node$/m);
    assert.match(text, /^HEALTHCHECK /m);
  });
});
