/** A reader of server-sent events, as small as the tests need: what a browser's EventSource does, without coming back. */

import { eventually, type TestServer } from '../server.ts';

export interface Message {
  readonly id: string;
  readonly event: string;
  readonly data: Record<string, unknown>;
}

export interface LiveClient {
  readonly status: number;
  readonly headers: Headers;
  readonly messages: Message[];
  /** As a browser remembers it: also of messages without data. */
  lastId(): string;
  text(): string;
  isOver(): boolean;
  /** The messages of type `event`, once there are that many. */
  events(count: number, deadlineMs?: number): Promise<Record<string, unknown>[]>;
  close(): void;
}

export interface OpenOptions {
  readonly key?: string;
  readonly lastEventId?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export async function openLive(
  { baseUrl }: Pick<TestServer, 'baseUrl'>,
  query: string,
  { key, lastEventId, headers = {} }: OpenOptions,
): Promise<LiveClient> {
  const controller = new AbortController();
  const response = await fetch(`${baseUrl}/live${query}`, {
    signal: controller.signal,
    headers: {
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
      ...headers,
    },
  });
  const messages: Message[] = [];
  let text = '';
  let lastId = '';
  let isOver = false;
  const read = async (): Promise<void> => {
    let rest = '';
    try {
      for await (const chunk of (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) {
        text += chunk;
        const blocks = (rest + chunk).split('\n\n');
        rest = blocks.pop() ?? '';
        for (const block of blocks) take(block);
      }
    } catch {
      // Closed by either side.
    }
    isOver = true;
  };
  const take = (block: string): void => {
    const fields = new Map(block.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line]));
    const valueOf = (name: string): string => fields.get(name)?.slice(name.length + 2) ?? '';
    lastId = valueOf('id') || lastId;
    if (!fields.has('data')) return;
    const data = JSON.parse(valueOf('data')) as Record<string, unknown>;
    messages.push({ id: lastId, event: valueOf('event'), data });
  };
  const shown = (): Record<string, unknown>[] =>
    messages.filter(({ event }) => event === 'event').map(({ data }) => data);
  void read();
  if (response.ok) await eventually('the stream says where it starts', () => lastId);
  return {
    status: response.status,
    headers: response.headers,
    messages,
    lastId: () => lastId,
    text: () => text,
    isOver: () => isOver,
    events: (count, deadlineMs) =>
      eventually(`${count} events come`, () => (shown().length >= count ? shown() : null), deadlineMs),
    close: () => controller.abort(),
  };
}
