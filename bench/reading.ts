/**
 * The runner's own calls to a server that is measured: metrics, the ledger, profiles and timelines, one at a time on one
 * connection that stays open. Anything but a 200 is an error, but for a person who is not there.
 */

import { Agent, get, request as open } from 'node:http';
import type { Server } from './servers.ts';

/** Default size of a page of a timeline. */
export const PAGE_EVENTS = 50;

export interface LedgerTotals {
  readonly received: number;
  readonly stored: number;
  readonly pending: number;
  readonly difference: number;
}

export interface Profile {
  readonly id: string;
  readonly merged_ids: readonly string[];
  readonly event_count: number;
}

export class Reader {
  private readonly server: Server;
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 1 });

  constructor(server: Server) {
    this.server = server;
  }

  async metrics(): Promise<ReadonlyMap<string, number>> {
    const lines = (await this.text('/metrics')).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    return new Map(
      lines.map((line) => {
        const space = line.lastIndexOf(' ');
        return [line.slice(0, space), Number(line.slice(space + 1))];
      }),
    );
  }

  /** How far the processor is; cheaper for the server than the ledger, and a moment ahead of it. */
  async progress(): Promise<{ readonly isBehind: boolean; readonly processed: number }> {
    const metrics = await this.metrics();
    const processed = metrics.get('sluice_processed_records_total') ?? 0;
    return { isBehind: processed < (metrics.get('sluice_log_entries_total') ?? 0), processed };
  }

  /** Of events, over all hours. */
  async ledger(): Promise<LedgerTotals> {
    const { totals } = JSON.parse(await this.text('/ledger')) as { totals: { events: LedgerTotals } };
    return totals.events;
  }

  /** Undefined for a person who is not known. */
  async profile(who: { readonly user_id: string } | { readonly email: string }): Promise<Profile | undefined> {
    const path = `/profiles?${new URLSearchParams({ ...who }).toString()}`;
    const { status, body } = await this.ask(path);
    return status === 404 ? undefined : (JSON.parse(expected200(path, status, body)) as Profile);
  }

  /** The newest page; empty for a profile that is not there any more. */
  async timeline(id: string): Promise<{ readonly events: readonly unknown[] }> {
    const path = `/profiles/${id}/events`;
    const { status, body } = await this.ask(path);
    return status === 404 ? { events: [] } : (JSON.parse(expected200(path, status, body)) as { events: unknown[] });
  }

  /** Its identifiers, merges and refused links; undefined for a profile that is not there any more. */
  async identity(id: string): Promise<unknown> {
    const path = `/profiles/${id}/identity`;
    const { status, body } = await this.ask(path);
    return status === 404 ? undefined : JSON.parse(expected200(path, status, body));
  }

  /** The newest page of all events. */
  async newestEvents(): Promise<unknown> {
    return JSON.parse(await this.text('/events'));
  }

  /** False for a profile that is not there any more. */
  async erase(id: string): Promise<boolean> {
    const path = `/profiles/${id}`;
    const { status, body } = await this.ask(path, 'DELETE');
    if (status !== 202 && status !== 404) throw new Error(`DELETE /profiles/… got ${status}: ${body}`);
    return status === 202;
  }

  /** Events by the counts of `GET /events/counts`, over all days since `from`. */
  async countedEvents(from: number): Promise<number> {
    const query = new URLSearchParams({
      interval: 'hour',
      from: new Date(from).toISOString(),
      to: new Date(Date.now() + 60_000).toISOString(),
    });
    const { buckets } = JSON.parse(await this.text(`/events/counts?${query.toString()}`)) as {
      buckets: { events: number }[];
    };
    return buckets.reduce((sum, { events }) => sum + events, 0);
  }

  close(): void {
    this.agent.destroy();
  }

  private async text(path: string): Promise<string> {
    const { status, body } = await this.ask(path);
    return expected200(path, status, body);
  }

  private async ask(path: string, method = 'GET'): Promise<{ status: number; body: string }> {
    const { port, key } = this.server;
    return new Promise((resolve, reject) => {
      const headers = { Authorization: `Bearer ${key}` };
      const request = open({ method, port, host: '127.0.0.1', path, headers, agent: this.agent }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (part: string) => {
          body += part;
        });
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      });
      request.on('error', reject);
      request.end();
    });
  }
}

/** Follows `GET /live` as the dashboard does, and counts what comes. */
export class LiveStream {
  events = 0;
  /** Why it ended before it was closed. */
  problem: string | null = null;
  private isClosing = false;
  private readonly request: ReturnType<typeof get>;

  constructor({ port, key }: Server) {
    const headers = { Authorization: `Bearer ${key}` };
    this.request = get({ port, host: '127.0.0.1', path: '/live', headers, agent: false }, (response) => {
      if (response.statusCode !== 200) this.problem = `GET /live got ${response.statusCode}`;
      response.setEncoding('utf8').on('data', (part: string) => {
        this.events += part.split('\ndata:').length - 1;
      });
      response.on('error', (error) => this.end(error.message));
      response.on('end', () => this.end('GET /live ended'));
    });
    this.request.on('error', (error) => this.end(error.message));
  }

  close(): void {
    this.isClosing = true;
    this.request.destroy();
  }

  private end(problem: string): void {
    if (!this.isClosing) this.problem ??= problem;
  }
}

function expected200(path: string, status: number, body: string): string {
  if (status !== 200) throw new Error(`GET ${path.replace(/\?.*/, '')} got ${status}`);
  return body;
}
