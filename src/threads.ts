/**
 * What threads of this program need to find each other and to hand memory over.
 */

/** Published builds are JavaScript, a checkout runs TypeScript; threads are started by file name. */
export function threadFile(name: string, importer: string): URL {
  return new URL(name + (importer.endsWith('.ts') ? '.ts' : '.js'), importer);
}

/** The bytes in memory of their own, which can be handed to another thread without a copy. Copies only if need be. */
export function inOwnMemory(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer } = bytes;
  const isAlone = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.byteLength;
  return isAlone ? new Uint8Array(buffer) : new Uint8Array(bytes);
}
