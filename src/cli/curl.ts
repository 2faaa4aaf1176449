/**
 * The lines that a person pastes to send a first event: curl for a terminal, fetch for a browser. They work as they
 * stand against the address they are made for. Keys are base62, so nothing in them needs escaping.
 */

const EXAMPLE = { users: [{ identifiers: { user_id: 'grace' }, events: [{ event_name: 'signed_up', plan: 'free' }] }] };

/** For bash and other POSIX shells, on one line. */
export function curlLine(baseUrl: string, key: string): string {
  return (
    `curl -i '${baseUrl}/ingest/events' -H 'Authorization: Bearer ${key}' ` +
    `-H 'Content-Type: application/json' -d '${JSON.stringify(EXAMPLE)}'`
  );
}

/**
 * For the console of a browser, or a page. Each visitor gets their own anon_id and keeps it: one and the same for
 * all would make them one person. `keepalive` lets the request finish when the page is left.
 */
export function fetchSnippet(baseUrl: string, key: string): string {
  return `const anonId = (localStorage.anon_id ??= crypto.randomUUID());
await fetch('${baseUrl}/ingest/events', {
  method: 'POST',
  keepalive: true,
  headers: { Authorization: 'Bearer ${key}', 'Content-Type': 'application/json' },
  body: JSON.stringify({
    users: [{ identifiers: { anon_id: anonId }, events: [{ event_name: 'page_viewed', path: location.pathname }] }],
  }),
});`;
}
