/** The app behind a real server on a free port, with an ingest path beside it as small as can be. */

import { createServer, type IncomingMessage, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { buildApp } from '../../src/api/app.ts';
import type { ApiParts } from '../../src/api/parts.ts';
import { loadConfig } from '../../src/config/config.ts';
import { KeyCache } from '../../src/keys/cache.ts';
import { allocateMetrics } from '../../src/telemetry/metrics.ts';
import type { KeyStore } from '../../src/keys.ts';
import type { Store } from '../../src/store.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';

export interface RunningApp {
  readonly app: FastifyInstance;
  readonly port: number;
  readonly errors: { readonly error: unknown; readonly traceId: string }[];
  readonly call: (method: string, path: string, options?: CallOptions) => Promise<HttpResponse>;
}

export interface CallOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface HttpResponse {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
}

export interface StartOptions extends Partial<ApiParts> {
  /** For routes of the test's own, added before the app is ready. */
  readonly prepare?: (app: FastifyInstance) => void;
}

/** Every method of it, and of the stores in it, rejects as a store does that cannot be read. */
export function brokenStore(): Store & KeyStore {
  const reject = (): Promise<never> => Promise.reject(new StoreUnavailableError('the disk is gone'));
  const broken: object = new Proxy(reject, { get: (_, name) => (name === 'watch' ? undefined : broken) });
  return broken as Store & KeyStore;
}

export async function startApp(context: Pick<TestContext, 'after'>, options: StartOptions = {}): Promise<RunningApp> {
  const errors: { error: unknown; traceId: string }[] = [];
  let traces = 0;
  const app = buildApp({
    serverFactory: (everythingElse): Server =>
      createServer((incoming, response) => {
        if (incoming.url === '/ingest/events') response.writeHead(202).end('fast path');
        else everythingElse(incoming, response);
      }),
    version: '1.2.3',
    role: 'all',
    readiness: () => ({ ready: true, reasons: [] }),
    renderMetrics: () => '# HELP up Up.\n# TYPE up gauge\nup 1\n',
    newTraceId: () => `trace-${++traces}`,
    onError: (error, traceId) => errors.push({ error, traceId }),
    onUnavailable: () => {},
    onRead: () => {},
    store: brokenStore(),
    keys: new KeyCache(brokenStore()),
    keyStore: brokenStore(),
    ...loadConfig({ env: {}, args: [] }),
    startWarnings: () => [],
    processingProblem: () => null,
    metricsBuffer: allocateMetrics(1),
    stopping: new AbortController().signal,
    publicUrl: '',
    environment: 'any',
    now: Date.now,
    receiptTime: options.now ?? Date.now,
    matchOptions: { defaultCountry: null, junkValues: new Set() },
    noteUse: () => {},
    ...options,
  });
  options.prepare?.(app);
  await app.listen({ port: 0, host: '127.0.0.1' });
  context.after(() => app.close());
  const { port } = app.server.address() as AddressInfo;
  return { app, port, errors, call: (method, path, given) => call(port, method, path, given) };
}

/** Unlike fetch, takes any method and sends the path as it is. */
function call(
  port: number,
  method: string,
  path: string,
  { headers = {}, body }: CallOptions = {},
): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ port, host: '127.0.0.1', method, path, headers, agent: false }, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('error', reject);
      incoming.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text });
      });
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}
