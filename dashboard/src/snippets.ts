/**
 * What a person pastes to send a first event, filled in with this server's address and a key: curl for a terminal,
 * a script tag for a web page, and programs with our SDK and with Segment's. Keys are base62, so nothing in them needs
 * escaping. The docs page of the server (src/api/docs-page.ts) shows the same; a test compares them.
 */

const EXAMPLE = { users: [{ identifiers: { user_id: 'grace' }, events: [{ event_name: 'signed_up', plan: 'free' }] }] };

/** For bash and other POSIX shells. */
export function curlLine(serverUrl: string, key: string): string {
  return `curl -i '${serverUrl}/ingest/events' \\
  -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' \\
  -d '${JSON.stringify(EXAMPLE)}'`;
}

/** For a web page; the server serves the script itself. `data-auto-page` sends page views, so a first event needs no more. */
export function scriptTag(serverUrl: string, key: string): string {
  return `<script async src="${serverUrl}/ingest/sluice.js"
  data-key="${key}" data-auto-page></script>`;
}

/** A module for Node.js. */
export function nodeProgram(serverUrl: string, key: string): string {
  return `${importLine('Sluice', '@sluice/sdk')}

const sluice = new Sluice({ url: '${serverUrl}', key: '${key}' });
sluice.user({ user_id: 'grace' }).track('signed_up', { plan: 'free' });
await sluice.close(); // at the end: sends what is queued`;
}

/** A module for Node.js with Segment's own SDK; the others need the same two changes. */
export function segmentProgram(serverUrl: string, key: string): string {
  return `${importLine('Analytics', '@segment/analytics-node')}

const analytics = new Analytics({
  writeKey: '${key}',
  host: '${serverUrl}',
  path: '/ingest/v1/batch',
});
analytics.track({ userId: 'grace', event: 'signed_up', properties: { plan: 'free' } });
await analytics.closeAndFlush();`;
}

/** Put together here, so that it is not taken for an import of this page. */
function importLine(name: string, packageName: string): string {
  const quoted = `'${packageName}'`;
  return `import { ${name} } from ${quoted};`;
}

/** Whether only this machine can reach the server by that address. */
export function isOnThisMachineOnly(serverUrl: string): boolean {
  const host = URL.parse(serverUrl)?.hostname ?? '';
  return host === 'localhost' || host === '[::1]' || host.startsWith('127.');
}
