/**
 * The baseline: what a plain `node:http` handler can do when it reads the body, parses it, checks each user and
 * responds as Sluice does, but knows no keys and stores nothing. It is meant to be a good plain handler, neither tuned
 * nor slowed: one pass, no framework, a known length. `node bench/bare.ts PORT`; SIGTERM ends it.
 */

import { randomUUID } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';

const IDENTIFIERS = ['user_id', 'email', 'phone_number', 'anon_id'] as const;

type Fields = Readonly<Record<string, unknown>>;

interface Rejected {
  readonly userIndex: number;
  readonly message: string;
}

const server = createServer((request, response) => {
  if (request.method !== 'POST' || request.url !== '/ingest/events') {
    reply(response, request.url === '/readyz' ? 200 : 404, '{}');
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const body = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
    ingest(response, body?.toString('utf8') ?? '');
  });
});

// As long as ours: connections that rest between two rounds stay open.
server.keepAliveTimeout = 65_000;
server.listen(Number(process.argv[2]), '127.0.0.1');
process.once('SIGTERM', () => process.exit(0));

function ingest(response: ServerResponse, text: string): void {
  const traceId = randomUUID();
  let users: unknown;
  try {
    users = (JSON.parse(text) as Fields | null)?.['users'];
  } catch {
    users = undefined;
  }
  if (!Array.isArray(users) || users.length === 0 || users.length > 1000) {
    reply(response, 400, JSON.stringify({ error: 'validation failed', trace_id: traceId, errors: [] }));
    return;
  }
  const errors: Rejected[] = [];
  for (let userIndex = 0; userIndex < users.length; userIndex += 1) {
    const message = check(users[userIndex]);
    if (message !== null) errors.push({ userIndex, message });
  }
  if (errors.length === users.length) {
    reply(response, 400, JSON.stringify({ error: 'validation failed', trace_id: traceId, errors }));
    return;
  }
  const accepted = users.length - errors.length;
  reply(
    response,
    202,
    JSON.stringify({ trace_id: traceId, users_accepted: accepted, users_rejected: errors.length, errors }),
  );
}

function check(user: unknown): string | null {
  if (!isFields(user)) return 'user must be an object';
  const identifiers = user['identifiers'];
  if (!isFields(identifiers) || !IDENTIFIERS.some((name) => isText(identifiers[name]))) {
    return 'at least one identifier is required (user_id, email, phone_number, or anon_id)';
  }
  const events = user['events'];
  if (!Array.isArray(events) || events.length === 0) return 'events array is required and must not be empty';
  for (const event of events as unknown[]) {
    if (!isFields(event) || typeof event['event_name'] !== 'string') return 'event_name is required';
  }
  return null;
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null;
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value.trim() !== '';
}

function reply(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
}
