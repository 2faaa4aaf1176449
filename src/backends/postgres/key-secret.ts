/**
 * The secret that keys the hashes of first uses (views/keyed-hash.ts). The first process that needs it creates it. It
 * must never change: no earlier first use could be found without it.
 */

import { randomBytes } from 'node:crypto';
import { type HashOfKey, keyHashes } from '../../views/keyed-hash.ts';
import type { Queryable } from './pool.ts';

const SECRET_BYTES = 32;

/** For readers. Without a secret nothing was hashed yet, so any hash finds nothing. */
export async function storedHashesOf(connection: Queryable): Promise<HashOfKey> {
  return keyHashes((await secretIn(connection)) ?? new Uint8Array(SECRET_BYTES));
}

export async function hashesOf(connection: Queryable): Promise<HashOfKey> {
  const known = await secretIn(connection);
  if (known !== undefined) return keyHashes(known);
  await connection.query('INSERT INTO key_secret (secret) VALUES ($1) ON CONFLICT DO NOTHING', [
    randomBytes(SECRET_BYTES),
  ]);
  const made = await secretIn(connection);
  if (made === undefined) throw new Error('the table key_secret has no row');
  return keyHashes(made);
}

async function secretIn(connection: Queryable): Promise<Uint8Array | undefined> {
  const { rows } = await connection.query<{ secret: Uint8Array }>('SELECT secret FROM key_secret');
  return rows[0]?.secret;
}
