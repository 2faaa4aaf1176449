/** The benchmark sustained offers what the lag allows: in a model of a server it must find the rate the server has. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { lagSecondsOf, type LagSample } from '../../bench/lag.ts';
import { FIRST_RATE, nextRate, RECENT_MILLISECONDS } from '../../bench/sustained.ts';

const STEP_MILLISECONDS = 10;

interface Model {
  readonly eventsPerSecond: number;
  /** What is processed becomes readable this often. */
  readonly commitMilliseconds: number;
}

/** Without a clock: a server that processes at its rate what it has received, and commits now and then. */
function offer({ eventsPerSecond, commitMilliseconds }: Model, seconds: number): LagSample[] {
  const samples: LagSample[] = [];
  let [rate, received, processed, done] = [FIRST_RATE, 0, 0, 0];
  for (let at = STEP_MILLISECONDS; at <= seconds * 1000; at += STEP_MILLISECONDS) {
    received += (rate * STEP_MILLISECONDS) / 1000;
    processed = Math.min(received, processed + (eventsPerSecond * STEP_MILLISECONDS) / 1000);
    if (at % commitMilliseconds === 0) done = processed;
    if (at % 200 === 0) {
      samples.push({ at, received, done, lagSeconds: lagSecondsOf([...samples, { at, received }], { at, done }) });
    }
    if (at % 500 === 0) rate = nextRate(samples.filter((sample) => sample.at >= at - RECENT_MILLISECONDS)) ?? rate;
  }
  return samples;
}

suite('the rate that sustained offers', () => {
  for (const eventsPerSecond of [8_000, 60_000, 150_000]) {
    for (const commitMilliseconds of [50, 800]) {
      const model = `${eventsPerSecond} events/s with commits every ${commitMilliseconds} ms`;
      test(`becomes that of a server of ${model}, with a lag under 2 s`, () => {
        const samples = offer({ eventsPerSecond, commitMilliseconds }, 75).filter(({ at }) => at >= 15_000);
        const [first, last] = [samples[0] as LagSample, samples.at(-1) as LagSample];
        const found = ((last.done - first.done) / (last.at - first.at)) * 1000;
        const share = found / eventsPerSecond;
        assert.ok(share > 0.93 && share <= 1.02, `it found ${Math.round(found)} events/s`);
        const late = samples.filter(({ lagSeconds }) => lagSeconds >= 2).length;
        assert.ok(late <= samples.length * 0.05, `${late} of ${samples.length} samples are late`);
      });
    }
  }
});
