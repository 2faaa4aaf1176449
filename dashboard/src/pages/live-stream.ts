/**
 * The connection to `/live`. Events come in batches, a few times a second, however many there are. The browser connects
 * again after a break and continues where it was; when it gives up, this tries again, less and less often.
 * A hidden page closes its connection after a while, because a browser has only six for a server,
 * and six forgotten tabs would leave none for the seventh.
 */

import { get } from '../api.ts';
import { parseExactly } from '../exact-json.ts';
import type { Environment } from '../api-constants.ts';
import type { StoredEvent } from '../api-types.ts';

export type Connection = 'connecting' | 'open' | 'lost' | 'resting';

interface LiveListener {
  readonly onEvents: (events: readonly StoredEvent[]) => void;
  readonly onSkipped: (events: number) => void;
  readonly onConnection: (connection: Connection) => void;
}

export interface LiveFilter {
  readonly eventName: string;
  readonly profileId: string;
  readonly keyId: string;
}

const BATCH_MS = 50;
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 15_000;
const HIDDEN_MS_MAX = 60_000;

export function livePath(environment: Environment, { eventName, profileId, keyId }: LiveFilter): string {
  const query = new URLSearchParams({ environment, include: 'person' });
  if (eventName !== '') query.set('event_name', eventName);
  if (profileId !== '') query.set('profile_id', profileId);
  if (keyId !== '') query.set('key_id', keyId);
  return `/live?${query.toString()}`;
}

/** Gives back what ends it. */
export function followLive(path: string, listener: LiveListener): () => void {
  let source: EventSource | undefined;
  let batch: StoredEvent[] = [];
  let retryMs = RETRY_MS_MIN;
  let batchTimer: ReturnType<typeof setTimeout> | undefined;
  let retryTimer: ReturnType<typeof setTimeout> | undefined;
  let restTimer: ReturnType<typeof setTimeout> | undefined;

  const notifyBatch = (): void => {
    batchTimer = undefined;
    const events = batch;
    batch = [];
    listener.onEvents(events);
  };

  const connect = (): void => {
    const mine = new EventSource(path);
    source = mine;
    mine.addEventListener('open', () => {
      retryMs = RETRY_MS_MIN;
      listener.onConnection('open');
    });
    mine.addEventListener('event', ({ data }: MessageEvent<string>) => {
      batch.push(parseExactly(data) as StoredEvent);
      batchTimer ??= setTimeout(notifyBatch, BATCH_MS);
    });
    mine.addEventListener('skipped', ({ data }: MessageEvent<string>) => {
      listener.onSkipped((JSON.parse(data) as { readonly events: number }).events);
    });
    mine.addEventListener('error', () => {
      listener.onConnection('lost');
      if (mine.readyState !== EventSource.CLOSED) return;
      noticeSignedOut();
      retryTimer = setTimeout(connect, retryMs);
      retryMs = Math.min(2 * retryMs, RETRY_MS_MAX);
    });
  };

  const disconnect = (): void => {
    clearTimeout(retryTimer);
    source?.close();
    source = undefined;
  };

  const onVisibility = (): void => {
    clearTimeout(restTimer);
    if (!document.hidden && source === undefined) {
      listener.onConnection('connecting');
      connect();
    }
    if (!document.hidden) return;
    restTimer = setTimeout(() => {
      disconnect();
      listener.onConnection('resting');
    }, HIDDEN_MS_MAX);
  };

  connect();
  document.addEventListener('visibilitychange', onVisibility);
  return () => {
    document.removeEventListener('visibilitychange', onVisibility);
    clearTimeout(restTimer);
    clearTimeout(batchTimer);
    disconnect();
  };
}

/** An EventSource does not say why it was refused. If the session is over, asking for it leads to the sign-in page. */
function noticeSignedOut(): void {
  get(null, '/session').catch(() => {});
}
