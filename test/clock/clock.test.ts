/**
 * The clock of `received_at`, with sources that the test sets: the wall clock steps, the machine sleeps, the server
 * restarts. Whatever happens the clock does not go back, and does not run away.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { suite, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import * as fc from 'fast-check';
import { CLOCK_EARLIEST, type TimeSources, TrustedClock, watchClock } from '../../src/clock/clock.ts';
import { loadConfig } from '../../src/config/config.ts';
import { logFolderOf } from '../../src/data-folder/files.ts';
import { DAY_MS, HOUR_MS, SECOND_MS } from '../../src/model.ts';
import type { Logger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, METRIC, metricsWriter, readGauge } from '../../src/telemetry/metrics.ts';
import { openClock } from '../../src/wiring/open-clock.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from '../processor/history.ts';
import { appendAll, processAll } from '../processor/processing.ts';

const TEN_YEARS_MS = 3_652 * DAY_MS;
const START = Date.UTC(2026, 10, 15, 12);
const BOUNDS = { jumpMsMax: DAY_MS, gapMsMax: 180 * DAY_MS };

/** A machine, its clocks, and a server on it that stores what it receives. */
class Machine {
  wall = START;
  #monotonic = 5_000;
  #uptime = 90_000;
  readonly #bounds: typeof BOUNDS;
  newest: number;
  clock: TrustedClock;
  readonly sources: TimeSources = {
    wall: () => this.wall,
    monotonic: () => this.#monotonic,
    uptime: () => this.#uptime,
  };

  constructor(newest = START, wall = START, bounds = BOUNDS) {
    this.#bounds = bounds;
    this.newest = newest;
    this.wall = wall;
    this.clock = this.#start();
  }

  #start(): TrustedClock {
    return new TrustedClock({ newest: this.newest, ...this.#bounds, sources: this.sources });
  }

  /** A request is received. */
  receive(): number {
    this.newest = this.clock.now();
    return this.newest;
  }

  pass(milliseconds: number): void {
    this.wall += milliseconds;
    this.#monotonic += milliseconds;
    this.#uptime += milliseconds;
  }

  /** As a server that reads its clock every so often. */
  run(milliseconds: number, every = HOUR_MS): number {
    for (let passed = 0; passed < milliseconds; passed += every) {
      this.pass(Math.min(every, milliseconds - passed));
      this.clock.now();
    }
    return this.receive();
  }

  sleep(milliseconds: number): void {
    this.wall += milliseconds;
    this.#uptime += milliseconds;
  }

  step(milliseconds: number): void {
    this.wall += milliseconds;
  }

  stepAll(milliseconds: number): void {
    this.wall += milliseconds;
    this.#monotonic += milliseconds;
  }

  /** Stopped, and started again after a while. */
  restart(milliseconds: number): void {
    this.pass(milliseconds);
    this.clock = this.#start();
  }
}

suite('The clock of received_at', () => {
  test('shows the time of a wall clock that is right, and follows small corrections', () => {
    const machine = new Machine();
    assert.equal(machine.run(HOUR_MS, SECOND_MS), machine.wall);
    machine.step(300);
    assert.equal(machine.receive(), machine.wall);
    machine.step(-300);
    machine.run(2 * SECOND_MS, 10);
    assert.equal(machine.receive(), machine.wall);
    assert.deepEqual([machine.clock.heldMs, machine.clock.behindMs], [0, 0]);
  });

  test('follows a step ahead up to the bound, and holds beyond it at the speed of the time that passes', () => {
    const machine = new Machine();
    machine.run(HOUR_MS);
    machine.step(DAY_MS);
    assert.equal(machine.receive(), machine.wall);
    const before = machine.receive();
    machine.step(TEN_YEARS_MS);
    assert.equal(machine.receive(), before);
    assert.equal(machine.run(3 * DAY_MS), before + 3 * DAY_MS);
    assert.equal(machine.clock.heldMs, TEN_YEARS_MS);
    assert.equal(machine.clock.isHeldSinceStart, false);
  });

  test('ends a hold by itself when the wall clock is right again', () => {
    const machine = new Machine();
    machine.run(HOUR_MS);
    machine.step(TEN_YEARS_MS);
    machine.run(HOUR_MS);
    assert.equal(machine.clock.heldMs, TEN_YEARS_MS);
    machine.step(-TEN_YEARS_MS);
    assert.equal(machine.run(HOUR_MS), machine.wall);
    assert.equal(machine.clock.heldMs, 0);
  });

  test('takes many steps within a short time for one, and steps of many days for many', () => {
    const machine = new Machine();
    const before = machine.run(HOUR_MS);
    machine.step(20 * HOUR_MS);
    assert.equal(machine.run(HOUR_MS), machine.wall);
    machine.step(20 * HOUR_MS);
    assert.equal(machine.run(HOUR_MS), before + 22 * HOUR_MS);
    assert.ok(machine.clock.heldMs > 0);

    const other = new Machine();
    for (let step = 0; step < 10; step += 1) {
      other.step(20 * HOUR_MS);
      assert.equal(other.run(DAY_MS), other.wall);
    }
  });

  test('counts a step that overtakes times of receipt which were ahead at the start', () => {
    for (const ahead of [50 * 60 * SECOND_MS, 20 * HOUR_MS]) {
      const machine = new Machine();
      machine.step(ahead);
      machine.receive();
      machine.step(-ahead);
      machine.restart(SECOND_MS);
      const before = machine.receive();
      for (let step = 0; step < 5; step += 1) {
        machine.step(23 * HOUR_MS);
        machine.run(SECOND_MS, SECOND_MS);
      }
      const moved = machine.receive() - before;
      assert.ok(moved <= DAY_MS + 10 * SECOND_MS, `it moved by ${moved / HOUR_MS} hours`);
      assert.ok(machine.clock.heldMs > 0);
    }
  });

  test('gives a smaller bound back over a day, not faster', () => {
    const machine = new Machine(START, START, { ...BOUNDS, jumpMsMax: HOUR_MS });
    machine.run(HOUR_MS);
    const before = machine.receive();
    for (let hour = 0; hour < 24; hour += 1) {
      machine.step(HOUR_MS);
      machine.run(HOUR_MS);
    }
    assert.ok(machine.receive() - before <= 26 * HOUR_MS);
    const steady = new Machine(START, START, { ...BOUNDS, jumpMsMax: HOUR_MS });
    for (let day = 0; day < 10; day += 1) {
      steady.step(50 * 60 * SECOND_MS);
      assert.equal(steady.run(DAY_MS), steady.wall);
    }
  });

  test('does not take sleep for a step', () => {
    const machine = new Machine();
    machine.run(HOUR_MS);
    machine.sleep(30 * DAY_MS);
    assert.equal(machine.receive(), machine.wall);
    assert.equal(machine.clock.heldMs, 0);
    machine.step(DAY_MS);
    assert.equal(machine.receive(), machine.wall);
  });

  test('waits for a wall clock that is behind at half speed, and continues with it from then on', () => {
    const machine = new Machine();
    const before = machine.run(HOUR_MS);
    machine.step(-DAY_MS);
    assert.equal(machine.run(HOUR_MS), before + HOUR_MS / 2);
    assert.equal(machine.clock.behindMs, DAY_MS - HOUR_MS / 2);
    machine.run(2 * DAY_MS);
    assert.equal(machine.receive(), machine.wall);
    assert.equal(machine.clock.behindMs, 0);
  });

  test('continues after the newest time of receipt after a restart, whatever the wall clock says then', () => {
    for (const wrong of [-TEN_YEARS_MS, -DAY_MS, TEN_YEARS_MS]) {
      const machine = new Machine();
      const before = machine.run(HOUR_MS);
      machine.step(wrong);
      machine.restart(SECOND_MS);
      assert.equal(machine.receive(), before + 1);
      machine.step(-wrong);
      assert.equal(machine.run(HOUR_MS), machine.wall);
    }
  });

  test('believes a clock after months of standstill up to the bound of a start, and says so beyond', () => {
    const machine = new Machine();
    machine.restart(180 * DAY_MS);
    assert.equal(machine.receive(), machine.wall);
    machine.restart(181 * DAY_MS);
    assert.equal(machine.receive(), START + 180 * DAY_MS + 1);
    assert.equal(machine.clock.isHeldSinceStart, true);
    assert.equal(machine.clock.heldMs, 181 * DAY_MS - 1);
  });

  test('counts a step after the start as one while it runs, whatever the clock was at the start', () => {
    for (const days of [-7_300, -3_652, -400, -370, -300, -1, 181, 400, 7_300]) {
      for (const ahead of [25 * HOUR_MS, 8 * DAY_MS, 100 * DAY_MS, 400 * DAY_MS]) {
        const machine = new Machine();
        machine.step(days * DAY_MS);
        machine.restart(SECOND_MS);
        const before = machine.receive();
        machine.wall = START + SECOND_MS + ahead;
        assert.equal(machine.receive(), before, `${days} days at the start, then ${ahead / HOUR_MS} hours ahead`);
        assert.equal(machine.run(HOUR_MS), before + HOUR_MS);
        assert.equal(machine.clock.isHeldSinceStart, days > 0);
        // It is right after all: a start finds out.
        if (ahead > BOUNDS.gapMsMax) continue;
        machine.restart(SECOND_MS);
        assert.equal(machine.receive(), machine.wall);
      }
    }
  });

  test('follows a clock that was wrong at the start and is set right within the bound', () => {
    for (const days of [-20_000, -400, -1, 181, 7_300]) {
      const machine = new Machine();
      machine.step(days * DAY_MS);
      machine.restart(23 * HOUR_MS);
      machine.run(10 * SECOND_MS, SECOND_MS);
      machine.step(-days * DAY_MS);
      assert.equal(machine.receive(), machine.wall);
      assert.ok(machine.clock.retentionTime() <= START + 10 * SECOND_MS + 1, 'retention waits');
      machine.step(2 * HOUR_MS);
      assert.ok(machine.run(SECOND_MS) < machine.wall, 'that counted');
    }
  });

  test('gives no edge an older time than another has given out, while each measures for itself', () => {
    const machine = new Machine();
    const shared = new BigInt64Array(new SharedArrayBuffer(8));
    const edge = (): TrustedClock => new TrustedClock({ newest: START, ...BOUNDS, shared, sources: machine.sources });
    machine.step(TEN_YEARS_MS);
    const edges = [edge()];
    machine.pass(2 * SECOND_MS);
    edges.push(edge());
    let last = 0;
    for (let turn = 0; turn < 100; turn += 1) {
      if (turn === 50) machine.step(-TEN_YEARS_MS - DAY_MS);
      machine.pass(turn * 7);
      const now = (edges[turn % 2] as TrustedClock).now();
      assert.ok(now >= last);
      last = now;
    }
  });

  test('never lets the time that edges share go back while they write it at the same moment', async () => {
    const shared = new BigInt64Array(new SharedArrayBuffer(8));
    const file = new URL('./clock-thread.ts', import.meta.url);
    const threads = [1, 2].map((step) => new Worker(file, { workerData: { shared, newest: START, step } }));
    const setBack = await Promise.all(threads.map(async (thread) => (await once(thread, 'message'))[0] as number));
    assert.deepEqual(setBack, [0, 0]);
  });

  test('lets retention wait for a day after a jump that it follows, while it runs and at a start', () => {
    const machine = new Machine();
    const before = machine.run(HOUR_MS);
    machine.step(23 * HOUR_MS);
    assert.equal(machine.receive(), machine.wall);
    assert.equal(machine.clock.retentionTime(), before);
    machine.run(23 * HOUR_MS);
    assert.equal(machine.clock.retentionTime(), before);
    const later = machine.run(HOUR_MS);
    assert.equal(machine.clock.retentionTime(), later);

    machine.restart(8 * DAY_MS);
    machine.run(23 * HOUR_MS);
    assert.equal(machine.clock.retentionTime(), later + 1);
    machine.run(HOUR_MS);
    assert.equal(machine.clock.retentionTime(), machine.wall);
  });

  test('lets retention go by a wall clock that was set right within the day', () => {
    const machine = new Machine();
    machine.restart(100 * DAY_MS);
    machine.run(HOUR_MS);
    machine.step(-100 * DAY_MS);
    machine.run(2 * DAY_MS);
    assert.ok(machine.receive() > machine.wall + 90 * DAY_MS);
    assert.equal(machine.clock.retentionTime(), machine.wall);
  });

  test('does not take it for time that has passed when all clocks but the uptime are set', () => {
    const machine = new Machine();
    const before = machine.run(HOUR_MS);
    machine.stepAll(TEN_YEARS_MS);
    assert.equal(machine.receive(), before);
    assert.equal(machine.run(HOUR_MS), before + HOUR_MS);
    machine.stepAll(-TEN_YEARS_MS);
    assert.equal(machine.receive(), machine.wall);
    assert.equal(machine.run(HOUR_MS), machine.wall);
  });

  test('lets retention continue after sleep, a short standstill and what was held, and in a new installation', () => {
    const machine = new Machine();
    machine.run(HOUR_MS);
    machine.sleep(30 * DAY_MS);
    assert.equal(machine.clock.retentionTime(), machine.wall);
    machine.receive();
    machine.restart(3 * DAY_MS);
    assert.equal(machine.clock.retentionTime(), machine.wall);
    const before = machine.receive();
    machine.step(TEN_YEARS_MS);
    machine.run(HOUR_MS);
    assert.equal(machine.clock.retentionTime(), before + HOUR_MS);
    const fresh = new Machine(0, START);
    assert.equal(fresh.clock.retentionTime(), START);
  });

  test('shows no time before Sluice on a new machine whose clock was never set', () => {
    const machine = new Machine(0, 0);
    assert.equal(machine.receive(), CLOCK_EARLIEST);
    machine.wall = START;
    assert.equal(machine.receive(), START);
    // Only the first time is believed.
    machine.step(2 * DAY_MS);
    assert.equal(machine.receive(), START);
  });

  test('gains no more than the bound, what is given back of it and what was waited, over any start and any steps after it', () => {
    const years = fc.integer({ min: -20 * 365 * DAY_MS, max: 20 * 365 * DAY_MS });
    // Near the times that the rules speak of, and anywhere. Negative is behind the newest event.
    const wall = fc.oneof(
      years,
      fc.integer({ min: -3 * DAY_MS, max: 3 * DAY_MS }),
      fc.constantFrom(-400, -370, -300, 100, 180, 181).map((days) => days * DAY_MS),
    );
    const act = fc.record({
      // Against the time that a right clock shows, if it is set at all.
      wall: fc.option(wall),
      passes: fc.oneof(fc.integer({ min: 0, max: 20 * SECOND_MS }), fc.integer({ min: 0, max: 2 * DAY_MS })),
    });
    const jumpMsMax = 12 * HOUR_MS;
    fc.assert(
      fc.property(wall, fc.array(act, { maxLength: 30, size: 'max' }), (atStart, acts) => {
        const machine = new Machine(START, START + atStart, { ...BOUNDS, jumpMsMax });
        const first = machine.receive();
        const isFollowed = atStart > 0 && atStart <= BOUNDS.gapMsMax + 1;
        assert.equal(first, isFollowed ? START + atStart : START + 1, 'the rule of a start');
        const received = [{ at: first, passed: 0, waited: 0 }];
        let passed = 0;
        let waited = 0;
        for (const { wall, passes } of acts) {
          if (wall !== null) machine.wall = START + passed + wall;
          // At half speed, so it has caught up after twice the difference.
          waited += Math.min(passes, 2 * Math.max(0, machine.newest - machine.wall)) / 2;
          machine.pass(passes);
          passed += passes;
          const at = machine.receive();
          for (const before of received) {
            const span = passed - before.passed;
            // A clock that was behind may make up for what was waited until then.
            const allowed = span + jumpMsMax + (span * jumpMsMax) / DAY_MS + before.waited;
            assert.ok(at - before.at <= allowed + 2, `${at - before.at} ms in ${span} ms`);
          }
          received.push({ at, passed, waited });
        }
      }),
      { numRuns: 1_000 },
    );
  });

  test('never goes back, never stands, and never runs away, over steps, sleep and restarts', () => {
    const span = fc.oneof(
      fc.integer({ min: 0, max: 2 * SECOND_MS }),
      fc.integer({ min: 0, max: 3 * DAY_MS }),
      fc.constantFrom(DAY_MS, 200 * DAY_MS, TEN_YEARS_MS),
    );
    const act = fc.oneof(
      { weight: 4, arbitrary: fc.record({ kind: fc.constant('run'), by: fc.integer({ min: 0, max: 2 * DAY_MS }) }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('ahead', 'back'), by: span }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart'), by: span }) },
      // What is shorter is not noticed as sleep.
      {
        weight: 1,
        arbitrary: fc.record({ kind: fc.constant('sleep'), by: fc.integer({ min: 5 * SECOND_MS, max: 300 * DAY_MS }) }),
      },
    );
    fc.assert(
      fc.property(fc.array(act, { maxLength: 60, size: 'max' }), (acts) => {
        const machine = new Machine();
        let last = machine.receive();
        let passed = 0;
        let first = last;
        for (const { kind, by } of acts) {
          if (kind === 'ahead') machine.step(by);
          else if (kind === 'back') machine.step(-by);
          else if (kind === 'sleep') machine.sleep(by);
          else if (kind === 'restart') {
            machine.restart(by);
            [first, passed] = [last, 0];
          } else machine.run(by);
          const elapsed = kind === 'run' || kind === 'sleep' ? by : 0;
          passed += elapsed;
          const now = machine.receive();
          assert.ok(Number.isInteger(now));
          assert.ok(now >= last + Math.floor(elapsed / 2) - 1, 'it goes on');
          if (kind === 'restart') assert.ok(now > last, 'a start is after what was');
          const bound = BOUNDS.gapMsMax + BOUNDS.jumpMsMax + 2 * passed + 2;
          assert.ok(now - first <= bound, 'it does not run away');
          last = now;
        }
      }),
      { numRuns: 500 },
    );
  });
});

suite('The watch over the clock', () => {
  test('sets the gauges, and says once what is wrong and when it is over', (context) => {
    context.mock.timers.enable({ apis: ['setInterval'] });
    const machine = new Machine();
    const buffer = allocateMetrics(1);
    const lines: string[] = [];
    const log = (level: string) => (_: object, message: string) => void lines.push(`${level}: ${message}`);
    const logger = { error: log('error'), warn: log('warn'), info: log('info') } as unknown as Logger;
    const stop = watchClock({ clock: machine.clock, metrics: metricsWriter(buffer, 0), logger });
    const seconds = (count: number): void => {
      for (let second = 0; second < count; second += 1) {
        machine.pass(SECOND_MS);
        context.mock.timers.tick(SECOND_MS);
      }
    };
    seconds(5);
    machine.step(TEN_YEARS_MS);
    seconds(5);
    assert.equal(readGauge(buffer, METRIC.clock_held), TEN_YEARS_MS / 1_000);
    machine.step(-TEN_YEARS_MS - 60 * SECOND_MS);
    seconds(5);
    assert.equal(readGauge(buffer, METRIC.clock_held), 0);
    assert.equal(readGauge(buffer, METRIC.clock_behind), 57.5);
    seconds(120);
    assert.equal(readGauge(buffer, METRIC.clock_behind), 0);
    stop();
    assert.deepEqual(
      lines.map((line) => line.replace(/, and.*|, which.*/, '')),
      [
        'error: the clock jumped ahead by more than SLUICE_CLOCK_JUMP_MAX: it is not trusted',
        'warn: the clock is behind the newest received_at',
        'info: the clock is right again: received_at follows it',
      ],
    );
  });
});

suite('The clock of a server', () => {
  const config = (dataFolder: string) => loadConfig({ env: { SLUICE_DATA: dataFolder }, args: [] }).config;
  const refuse = (message: string): void => assert.fail(message);

  test('starts after the newest event in the log, or in the store if the log was removed', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const ahead = Date.now() + HOUR_MS;
    const entries = [ahead - 1, ahead].map((receivedAt, n) =>
      entryOf([{ identifiers: { user_id: 'ada' }, events: [{ event_name: 'tested' }] }], {
        traceId: traceIdOf(receivedAt, n),
        receivedAt,
        tenantId: 'acct_test/development',
        keyKind: 'secret',
        idempotencyKey: null,
      }),
    );
    await appendAll(dataFolder, entries);
    const started = async (): Promise<number> => (await openClock(config(dataFolder), refuse)).now() - ahead;
    const inLog = await started();
    assert.ok(inLog > 0 && inLog < HOUR_MS / 2, `${inLog} ms after the newest event`);
    await processAll(dataFolder);
    rmSync(logFolderOf(dataFolder), { recursive: true });
    const inStore = await started();
    assert.ok(inStore > 0 && inStore < HOUR_MS / 2, `${inStore} ms after the newest event`);
  });

  test('starts with the wall clock where nothing was ever stored', async () => {
    await using scope = new AsyncDisposableStack();
    const before = Date.now();
    const now = (await openClock(config(folderIn(scope)), refuse)).now();
    assert.ok(now >= before && now <= Date.now());
  });
});
