/**
 * Where a server can be called, made from where it listens.
 */

/** The address to call a server at that listens on `host`: "all addresses" is nothing that one can call. */
export function baseUrlOf(host: string, port: number): string {
  if (host === '0.0.0.0') return `http://127.0.0.1:${port}`;
  if (host === '::') return `http://[::1]:${port}`;
  return host.includes(':') ? `http://[${host}]:${port}` : `http://${host}:${port}`;
}
