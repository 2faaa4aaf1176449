/**
 * What a person pastes to send a first event, filled in with this server's address and a key: curl for a terminal,
 * fetch for a web page. Keys are base62, so nothing in them needs escaping.
 */

const EXAMPLE = { users: [{ identifiers: { user_id: 'grace' }, events: [{ event_name: 'signed_up', plan: 'free' }] }] };

/** For bash and other POSIX shells. */
export function curlLine(serverUrl: string, key: string): string {
  return `curl -i '${serverUrl}/ingest/events' \\
  -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' \\
  -d '${JSON.stringify(EXAMPLE)}'`;
}

/**
 * For a script of a web page. Each visitor gets their own anon_id and keeps it: one and the same for all would make
 * them one person. `keepalive` lets the request finish when the page is left.
 */
export function browserSnippet(serverUrl: string, key: string): string {
  return `const anonId = (localStorage.anon_id ??= crypto.randomUUID());
fetch('${serverUrl}/ingest/events', {
  method: 'POST',
  keepalive: true,
  headers: { Authorization: 'Bearer ${key}', 'Content-Type': 'application/json' },
  body: JSON.stringify({
    users: [{
      identifiers: { anon_id: anonId },
      events: [{ event_name: 'page_viewed', path: location.pathname }],
    }],
  }),
});`;
}

/** Whether only this machine can reach the server by that address. */
export function isOnThisMachineOnly(serverUrl: string): boolean {
  const host = URL.parse(serverUrl)?.hostname ?? '';
  return host === 'localhost' || host === '[::1]' || host.startsWith('127.');
}
