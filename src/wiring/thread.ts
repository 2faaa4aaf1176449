/**
 * The entry point of three kinds of threads of `sluice serve`: edge, processor and checkpointer; the role in
 * the setup decides which. Like `main.ts` it is a composition root: it wires up the parts, imports concrete backends on
 * first use, and holds no logic of its own. `thread-parts.ts` opens what a thread works on in each of the three
 * deployments (files only; PostgreSQL with a local log; PostgreSQL and Kafka).
 */

import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import type { TrustedClock } from '../clock/clock.ts';
import { retentionTimeFileOf } from '../data-folder/files.ts';
import { OperatorError } from '../errors.ts';
import type {
  CheckpointerMessage,
  CheckpointerSetup,
  EdgeMessage,
  EdgeSetup,
  ProcessorMessage,
  ProcessorSetup,
  SupervisorMessage,
} from './supervisor.ts';

/** One edge thread: its end of the log, of the key store and the member store, its HTTP server. */
async function runEdge(setup: EdgeSetup): Promise<void> {
  const { config, sources, index, connectionsMax, metricsBuffer, version } = setup;
  const send = (message: EdgeMessage): void => parentPort?.postMessage(message);
  try {
    const { openEdgeParts, warningsOf } = await import('./thread-parts.ts');
    let { databaseProblem, installation } = setup;
    let processingProblem: string | null = null;
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'processing') processingProblem = message.problem;
      if (message.type !== 'database') return;
      installation = message.installation;
      databaseProblem = message.problem;
    });
    const onFatal = (message: string): void => send({ type: 'fatal', message });
    const clockOpened = Promise.withResolvers<TrustedClock>();
    const opening = openEdgeParts(setup, {
      onFatal,
      databaseProblem: () => databaseProblem,
      installation: () => installation,
      clock: clockOpened.promise,
    });
    const [{ startEdge }, { statusOf }, { createLogger }, { metricsWriter }, { openClock }, { watchClock }, opened] =
      await Promise.all([
        import('../edge/edge.ts'),
        import('./supervisor.ts'),
        import('../telemetry/logger.ts'),
        import('../telemetry/metrics.ts'),
        import('./opening.ts'),
        import('../clock/clock.ts'),
        opening,
      ]);
    const logger = createLogger(config.logLevel, `edge-${index}`);
    const newest = config.edges > 1 ? new BigInt64Array(setup.clockBuffer) : null;
    const clock = await openClock(config, (message) => logger.warn(message), newest, databaseProblem !== null);
    clockOpened.resolve(clock);
    const stopWatching = watchClock({ clock, metrics: metricsWriter(metricsBuffer, 2 * index), logger });
    const edge = await startEdge(
      {
        ...opened.parts,
        config,
        sources,
        startWarnings: await warningsOf(setup),
        processingProblem: () => processingProblem,
        connectionsMax,
        metrics: { buffer: metricsBuffer, slot: 2 * index },
        status: statusOf(setup.statusBuffer),
        logger,
        version,
        now: Date.now,
        receiptTime: clock.now,
        newestTraceId: config.edges > 1 ? new BigInt64Array(setup.traceIdBuffer) : null,
        rateLimitBuffer: setup.rateLimitBuffer,
        handOverUsage: (keyUsage) => send({ type: 'keyUsage', keyUsage }),
      },
      setup.port,
    );
    const drain = async (): Promise<void> => {
      opened.stop();
      await edge.drain();
      stopWatching();
      await opened.close();
      send({ type: 'drained' });
    };
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'drain') void drain();
    });
    send({ type: 'listening', port: edge.port });
  } catch (error) {
    // What the operator can fix gets a message; anything else is a bug and crashes with its stack.
    if (!(error instanceof OperatorError)) throw error;
    send({ type: 'refused', message: error.message });
  }
}

/** The processor's thread: reads the log, or its share of the partitions, and writes the store. */
async function runProcessor(setup: ProcessorSetup): Promise<void> {
  const { config, metricsBuffer, statusBuffer } = setup;
  const send = (message: ProcessorMessage): void => parentPort?.postMessage(message);
  const [
    { openProcessorParts },
    { Processor },
    { Housekeeping },
    { matchOptionsOf },
    { createLogger },
    { METRIC, metricsWriter, readCounter, readGauge },
    { metricsSlots, setBacklogFull, statusOf },
    { yieldPolicy },
    { CurrentWarningPlans },
    { OutageLog },
    { openClock },
    { watchClock },
    { openRetentionClock },
    { assertLockHeld, LockLostError },
  ] = await Promise.all([
    import('./thread-parts.ts'),
    import('../processor/processor.ts'),
    import('../processor/housekeeping.ts'),
    import('../config/match-options.ts'),
    import('../telemetry/logger.ts'),
    import('../telemetry/metrics.ts'),
    import('./supervisor.ts'),
    import('../processor/yield-policy.ts'),
    import('../processor/plan-warnings.ts'),
    import('../telemetry/outage-log.ts'),
    import('./opening.ts'),
    import('../clock/clock.ts'),
    import('../clock/retention-clock.ts'),
    import('../data-folder/held-lock.ts'),
  ]);
  try {
    const logger = createLogger(config.logLevel, 'processor');
    const metrics = metricsWriter(metricsBuffer, metricsSlots(config.edges) - 1);
    // Retention, and when first uses expire, go by it: a clock that jumps must not make anything look old.
    const clock = await openClock(config, (message) => logger.warn(message));
    const stopWatching = watchClock({ clock, metrics, logger });
    const retentionTime =
      config.storeUrl === ''
        ? openRetentionClock({ file: retentionTimeFileOf(config.dataFolder), time: clock.retentionTime })
        : clock.retentionTime;
    const opened = await openProcessorParts(setup, retentionTime);
    const { parts } = opened;
    const common = { log: parts.log, writer: parts.writer, metrics, logger, now: clock.now };
    // Of a log that is shared this one reads a part: how much of it waits in all, the edges find out.
    const isOwnLog = config.logUrl === '';
    const housekeeping = new Housekeeping({
      ...common,
      retentionTime,
      retention: {
        eventsMs: config.eventRetentionMs,
        tracesMs: config.traceRetentionMs,
        rejectionsMs: config.rejectionRetentionMs,
        rejectionBytesMax: config.rejectionBytesMax,
      },
      backlogBytesMax: isOwnLog ? config.backlogBytesMax : Number.MAX_SAFE_INTEGER,
      setBacklogFull: (isFull) => isOwnLog && setBacklogFull(statusBuffer, isFull),
    });
    const status = statusOf(statusBuffer);
    const takeTurn = yieldPolicy({
      now: clock.now,
      waiting: () => readGauge(metricsBuffer, METRIC.requests_waiting) ?? 0,
      entries: () => readCounter(metricsBuffer, METRIC.log_entries),
      bytes: () => readCounter(metricsBuffer, METRIC.log_bytes),
      isStopping: () => status.isShuttingDown(),
    });
    const plans = new CurrentWarningPlans(
      opened.keyStore.plans,
      new OutageLog(logger, {
        failing: 'tracking plans cannot be read: those that are known stay in use',
        working: 'tracking plans can be read again',
      }),
      logger,
    );
    await plans.start();
    const processor = new Processor({
      ...parts,
      ...common,
      plans,
      planStore: opened.keyStore.plans,
      options: matchOptionsOf(config),
      assertLockHeld: () => assertLockHeld(setup.lock),
      onProblem: (problem) => send({ type: 'problem', problem }),
      betweenTransactions: async (positions, caughtUpTo) => {
        await housekeeping.run(positions, caughtUpTo);
        await takeTurn(caughtUpTo);
      },
    });
    parentPort?.on('message', (message: SupervisorMessage) => {
      if (message.type === 'drain') processor.stop();
    });
    send({ type: 'started' });
    await processor.run();
    plans.stop();
    stopWatching();
    await opened.close();
    send({ type: 'stopped' });
  } catch (error) {
    if (error instanceof LockLostError) {
      send({ type: 'fatal', message: error.message });
      return;
    }
    if (!(error instanceof OperatorError)) throw error;
    send({ type: 'refused', message: error.message });
  }
}

/** The thread that makes the checkpoints of the log and the store. */
async function runCheckpointer(): Promise<void> {
  const { serveCheckpoints } = await import('../backends/sqlite/checkpointer.ts');
  const serve = serveCheckpoints((message) => {
    const fatal: CheckpointerMessage = { type: 'fatal', message };
    parentPort?.postMessage(fatal);
  });
  parentPort?.on('message', (port: MessagePort) => serve(port));
}

const setup = workerData as EdgeSetup | ProcessorSetup | CheckpointerSetup;
switch (setup.role) {
  case 'edge':
    await runEdge(setup);
    break;
  case 'processor':
    await runProcessor(setup);
    break;
  case 'checkpointer':
    await runCheckpointer();
    break;
}
