/**
 * A strict reader of the Prometheus text format 0.0.4: each family has one HELP, then one TYPE, then its samples, all
 * in one place; no line is anything else. Throws at the first deviation, so parsing is itself a check.
 */

import assert from 'node:assert/strict';

export interface Family {
  readonly help: string;
  readonly type: string;
  readonly samples: Sample[];
}

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const HELP = /^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (\S.*)$/;
const TYPE = /^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|[+-]Inf)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)/y;
const SUFFIXES: Readonly<Record<string, readonly string[]>> = {
  counter: [''],
  gauge: [''],
  histogram: ['_bucket', '_sum', '_count'],
};

export function parsePrometheus(text: string): Map<string, Family> {
  assert.ok(text.endsWith('\n'), 'the last line must end');
  const families = new Map<string, Family>();
  const seen = new Set<string>();
  const lines = text.slice(0, -1).split('\n');
  let at = 0;
  while (at < lines.length) {
    const help = HELP.exec(lines[at] ?? '');
    const type = TYPE.exec(lines[at + 1] ?? '');
    assert.ok(help, `not a HELP line: ${lines[at]}`);
    assert.ok(type, `not a TYPE line: ${lines[at + 1]}`);
    const [, name = '', words = ''] = help;
    assert.equal(type[1], name);
    assert.ok(!families.has(name), `${name} comes twice`);
    const family: Family = { help: words, type: type[2] ?? '', samples: [] };
    for (at += 2; at < lines.length && !lines[at]?.startsWith('#'); at++) {
      const line = lines[at] ?? '';
      const sample = parseSample(line);
      assert.ok(
        SUFFIXES[family.type]?.some((suffix) => sample.name === name + suffix),
        `${line} is not of ${name}`,
      );
      const series = `${sample.name} ${JSON.stringify(sample.labels)}`;
      assert.ok(!seen.has(series), `${series} comes twice`);
      seen.add(series);
      family.samples.push(sample);
    }
    assert.ok(family.samples.length > 0, `${name} has no samples`);
    families.set(name, family);
  }
  return families;
}

function parseSample(line: string): Sample {
  const match = SAMPLE.exec(line);
  assert.ok(match, `not a sample: ${line}`);
  const [, name = '', labelText = '', number = ''] = match;
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < labelText.length) {
    const label = LABEL.exec(labelText);
    assert.ok(label, `not labels: ${labelText}`);
    const [, key = '', value = ''] = label;
    assert.ok(!Object.hasOwn(labels, key), `${key} comes twice in ${line}`);
    labels[key] = value.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped));
  }
  return { name, labels, value: Number(number.replace('Inf', 'Infinity')) };
}

/** The value of one series; throws if there is none. */
export function valueOf(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  for (const { samples } of families.values()) {
    for (const sample of samples) {
      if (sample.name === name && JSON.stringify(sample.labels) === JSON.stringify(labels)) return sample.value;
    }
  }
  throw new assert.AssertionError({ message: `no series ${name} ${JSON.stringify(labels)}` });
}
