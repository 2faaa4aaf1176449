/**
 * The files that others run Sluice with agree with the program: settings and roles that there are, addresses that it
 * takes, probes on routes that it serves, and more time to stop than it needs. Whether Docker and Kubernetes take them
 * is not shown here.
 */

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseKafkaUrl } from '../src/backends/kafka/url.ts';
import { readPostgresUrl } from '../src/backends/postgres/url.ts';
import { ROLES } from '../src/model.ts';
import { SETTINGS } from '../src/settings.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const MANIFESTS = globSync('deploy/kubernetes/*.yaml', { cwd: ROOT }).sort();
const ALL = ['Dockerfile', 'compose.yaml', ...MANIFESTS];

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
    test(`on Kubernetes the ${role} has probes, a disruption budget, no rights, and time to stop`, () => {
      const text = read(`deploy/kubernetes/${role}.yaml`);
      for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) assert.ok(text.includes(probe), probe);
      assert.deepEqual(new Set(found(text, /path: (\/\w+),/g)), new Set(['/livez', '/readyz']));
      assert.match(text, /kind: PodDisruptionBudget/);
      assert.match(text, /runAsNonRoot: true/);
      const [seconds] = found(text, /terminationGracePeriodSeconds: (\d+)/g).map(Number);
      assert.ok((seconds ?? 0) > SETTINGS.shutdownMs.default / 1000);
    });
  }

  test('the image has the Node that the package asks for, no root, and a health check', () => {
    const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
    const text = read('Dockerfile');
    const major = /\d+/.exec(engines.node)?.[0];
    assert.deepEqual(new Set(found(text, /^FROM node:(\d+)-slim/gm)), new Set([major]));
    assert.match(text, /^USER node$/m);
    assert.match(text, /^HEALTHCHECK /m);
  });
});
