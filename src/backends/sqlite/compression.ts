/**
 * Bytes as they lie in SQLite: compressed with Zstandard where that makes them smaller. The caller stores the original
 * size beside them. That size says whether they are compressed (then fewer are stored) and bounds the memory that
 * reading them takes, so a damaged or forged frame cannot exhaust it. A frame carries a checksum of what was compressed.
 *
 * Compressing takes about 13 µs and decompressing 8 µs however few bytes there are, since Node offers no context to reuse:
 * callers leave small ones as they are.
 */

import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { damaged } from './database.ts';

/** Higher levels make bodies no smaller, lower ones are no faster on them. */
const COMPRESS = {
  params: { [constants.ZSTD_c_compressionLevel]: 1, [constants.ZSTD_c_checksumFlag]: 1 },
};
/** A frame names the memory that decoding it takes. Level 1 writes frames that need 512 KiB. */
const WINDOW_LOG_MAX = 20;
const DECOMPRESS = { params: { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG_MAX } };

/** The same bytes where compression does not make them fewer. */
export function compress(bytes: Uint8Array): Uint8Array {
  const compressed = zstdCompressSync(bytes, COMPRESS);
  return compressed.byteLength < bytes.byteLength ? compressed : bytes;
}

/**
 * The `bytes` bytes that `stored` is made of; throws where it is not. `bytes` was stored too and may be damaged, so
 * nothing is decompressed to more than `bytesMax`.
 */
export function decompress(stored: Uint8Array, bytes: number, bytesMax: number): Uint8Array {
  if (stored.byteLength === bytes) return stored;
  if (!(bytes > stored.byteLength && bytes <= bytesMax)) throw damaged('the size of compressed bytes is not possible');
  let found: Uint8Array;
  try {
    // In one piece of memory of its own size.
    found = zstdDecompressSync(stored, {
      ...DECOMPRESS,
      chunkSize: Math.max(bytes, constants.Z_MIN_CHUNK),
      maxOutputLength: bytes,
    });
  } catch {
    throw damaged('compressed bytes cannot be decompressed');
  }
  if (found.byteLength !== bytes) throw damaged('compressed bytes are fewer than were stored');
  return found;
}
