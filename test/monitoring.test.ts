/**
 * The alerts, the dashboard and the autoscaler in `deploy/` name metrics, labels and values that a real server has, and
 * every alert says what to do. Whether Prometheus, Grafana and KEDA accept the files is not shown here.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Family, parsePrometheus } from './prometheus-text.ts';
import { parseQuery } from './promql.ts';
import {
  eventually,
  post,
  removeFolder,
  runSluice,
  startServer,
  temporaryFolder,
  type TestServer,
  user,
} from './server.ts';
import { at, parseYaml, type Yaml } from './yaml.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** Given by Prometheus to whatever it scrapes. */
const TARGET_LABELS = new Set(['job', 'instance', 'namespace', 'pod']);
/** Made by Prometheus itself. */
const OWN_METRICS = new Set(['up']);
const FUNCTIONS = new Set(
  'sum max count avg_over_time rate increase deriv changes predict_linear histogram_quantile time'.split(' '),
);
const ALERT_NEEDS = [
  'SluiceNotReady',
  'SluiceIngestUnavailable',
  'SluiceConnectionLimit',
  'SluiceLedgerDifference',
  'SluiceDeadLetters',
  'SluiceBackupOld',
];

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string; readonly runbook_url: string };
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
}

function rules(): Rule[] {
  const [document] = parseYaml(read('deploy/prometheus/rules.yaml'));
  return at(document, 'groups', 0, 'rules') as unknown as Rule[];
}

function dashboard(): Dashboard {
  return JSON.parse(read('deploy/grafana/sluice.json')) as Dashboard;
}

/** As Grafana fills its own variables in. */
function filledIn(expr: string): string {
  return expr.replaceAll(/\[\$__(rate_interval|range)\]/g, '[5m]');
}

suite('What Sluice is watched with', { timeout: 120_000 }, () => {
  const backups = temporaryFolder();
  let server: TestServer;
  let families: Map<string, Family>;

  before(async () => {
    server = await startServer();
    assert.equal((await post(server, server.key, { users: [user('u')] })).status, 202);
    assert.equal((await runSluice(['backup', '--to', join(backups, 'b'), '--data', server.dataFolder])).code, 0);
    families = await eventually('everything has been measured once', async () => {
      const found = parsePrometheus(await (await fetch(`${server.baseUrl}/metrics`)).text());
      return [
        'sluice_ready',
        'sluice_last_backup_timestamp_seconds',
        'sluice_ledger_difference',
        'sluice_log_missing_records',
        'sluice_processor_lag_seconds',
      ].every((one) => found.has(one))
        ? found
        : undefined;
    });
  });
  after(async () => {
    await server.kill('SIGKILL');
    removeFolder(server.dataFolder);
    removeFolder(backups);
  });

  /** The labels of a series by name, with all their values; undefined where no such series is exported. */
  function labelsOf(metric: string): Map<string, Set<string>> | undefined {
    const samples = [...families.values()].flatMap((family) => family.samples).filter(({ name }) => name === metric);
    if (samples.length === 0) return undefined;
    const labels = new Map<string, Set<string>>();
    for (const sample of samples) {
      for (const [label, value] of Object.entries(sample.labels)) {
        labels.set(label, (labels.get(label) ?? new Set()).add(value));
      }
    }
    return labels;
  }

  function assertKnown(expr: string): void {
    const { selectors, functions, groupLabels } = parseQuery(filledIn(expr));
    for (const name of functions) assert.ok(FUNCTIONS.has(name), `the function ${name} in ${expr}`);
    assert.ok(selectors.length > 0, expr);
    const known = new Set(TARGET_LABELS);
    for (const { metric, matchers } of selectors) {
      const labels = OWN_METRICS.has(metric) ? new Map<string, Set<string>>() : labelsOf(metric);
      assert.ok(labels, `no metric ${metric}, in ${expr}`);
      for (const label of labels.keys()) known.add(label);
      for (const { label, operator, value } of matchers) {
        assert.ok(labels.has(label) || TARGET_LABELS.has(label), `${metric} has no label ${label}, in ${expr}`);
        const isExact = operator === '=' || operator === '!=';
        if (isExact && labels.has(label)) assert.ok(labels.get(label)?.has(value), `no ${label}="${value}" in ${expr}`);
      }
    }
    for (const label of groupLabels) assert.ok(known.has(label), `no label ${label}, in ${expr}`);
  }

  test('every expression of an alert is about metrics and labels that there are', () => {
    assert.ok(rules().length >= 10);
    for (const { expr } of rules()) assertKnown(expr);
  });

  test('every alert has a severity, a summary, what to do, and a section of the documentation', () => {
    const headings = [...read('docs/operating.md').matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading);
    const names = rules().map(({ alert }) => alert);
    assert.equal(new Set(names).size, names.length);
    for (const name of ALERT_NEEDS) assert.ok(names.includes(name), name);
    for (const { alert, for: wait = '0s', labels, annotations } of rules()) {
      assert.match(alert, /^Sluice[A-Z]\w+$/);
      assert.ok(['critical', 'warning'].includes(labels.severity), alert);
      assert.match(wait, /^\d+[smh]$/, alert);
      assert.ok(annotations.summary.length > 10 && annotations.summary.length < 100, alert);
      assert.ok(annotations.description.length > 40, alert);
      assert.equal(annotations.runbook_url, `docs/operating.md#${alert.toLowerCase()}`);
      assert.ok(headings.includes(alert), `docs/operating.md has no section ${alert}`);
    }
    const sections = headings.filter((heading) => /^Sluice[A-Z]\w+$/.test(heading));
    assert.deepEqual(sections.toSorted(), names.toSorted());
  });

  test('labels that a text fills in are those that its expression keeps', () => {
    for (const { alert, expr, annotations } of rules()) {
      const { groupLabels, functions } = parseQuery(expr);
      const isAggregated = functions.includes('sum') || functions.includes('max');
      const kept = new Set([...groupLabels, ...(isAggregated ? [] : TARGET_LABELS)]);
      for (const [, label = ''] of `${annotations.summary} ${annotations.description}`.matchAll(/\$labels\.(\w+)/g)) {
        assert.ok(kept.has(label), `${alert} names ${label}, which its expression drops`);
      }
    }
  });

  test('every panel of the dashboard shows metrics and labels that there are', () => {
    const panels = dashboard().panels.filter(({ type }) => type !== 'row');
    assert.ok(panels.length >= 15);
    const shown = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)).join('\n');
    assert.match(shown, /sluice_connections_max.*\n.*sluice_connections_over_limit_total/s);
    for (const { title, description = '', targets = [] } of panels) {
      assert.ok(description.length > 0 && targets.length > 0, title);
      for (const { expr, legendFormat } of targets) {
        assertKnown(expr);
        assert.ok(legendFormat.length > 0, title);
      }
    }
    assert.equal(new Set(dashboard().panels.map(({ id }) => id)).size, dashboard().panels.length);
  });

  test('the dashboard has the variables that its expressions use, and no panel covers another', () => {
    const names = new Set(dashboard().templating.list.map(({ name }) => name));
    for (const [, name = ''] of read('deploy/grafana/sluice.json').matchAll(/\$([a-z]\w*)/g)) {
      assert.ok(names.has(name), name);
    }
    const cells = new Set<string>();
    for (const { title, gridPos } of dashboard().panels) {
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          assert.ok(!cells.has(`${x}/${y}`) && x < 24, title);
          cells.add(`${x}/${y}`);
        }
      }
    }
  });

  test('the autoscaler of the processors asks for a metric that there is', () => {
    const [scaled] = parseYaml(read('deploy/kubernetes/components/processor-autoscaling/scaled-object.yaml'));
    const triggers = at(scaled, 'spec', 'triggers') as Yaml[];
    assert.equal(triggers.length, 1);
    assertKnown(at(triggers[0], 'metadata', 'query') as string);
  });

  test('an expression about something that there is not is found out', () => {
    for (const wrong of [
      'sluice_no_such_total > 0',
      'rate(sluice_unavailable_total{reason="full"}[5m])',
      'rate(sluice_unavailable_total{cause="log"}[5m])',
      'sum by (reason) (rate(sluice_requests_total[5m]))',
      'sum(rate(sluice_requests_total[5m])',
      'rat(sluice_requests_total[5m])',
    ]) {
      assert.throws(() => assertKnown(wrong), assert.AssertionError, wrong);
    }
  });
});
