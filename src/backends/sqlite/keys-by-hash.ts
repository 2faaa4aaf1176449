/**
 * The migration that took match keys out of `identifiers` (decision 019): before it that table was ordered by value, and
 * keys were looked up in it. Afterwards it is ordered by node, and `match_keys` has the hash of every key.
 *
 * Takes the memory of a piece of keys, however large the store is; the file grows by the new tables before the old one
 * goes, and the freed pages are given back by the next sweeps.
 */

import { randomBytes } from 'node:crypto';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { IDENTIFIER_TYPES } from '../../model.ts';
import { companyOf, type Key, type KeyHash } from '../../stored/keyed-hash.ts';
import { hashesOf } from './store-match-keys.ts';

const SECRET_BYTES = 32;
/** Sorted and inserted at a time: a page of the new table is then touched once a piece. */
const PIECE_KEYS = 1_000_000;

const TABLES = `
  -- One row: what the hashes of match keys are made with. As secret as the keys themselves; without it nobody is found.
  CREATE TABLE key_secret (secret BLOB NOT NULL) STRICT;

  -- A match key points to its node for ever: its hash (stored/keyed-hash.ts) in two numbers. Of the keys that a node
  -- was given at once, the strongest has the hash of all of them, 'company'.
  CREATE TABLE match_keys (
    hash INTEGER NOT NULL,
    rest INTEGER NOT NULL,
    node INTEGER NOT NULL,
    company INTEGER,
    PRIMARY KEY (hash, rest)
  ) STRICT, WITHOUT ROWID;

  -- The match keys of a node. 'raw' is null where it equals 'value'; its origin is null where it is the node's own.
  ALTER TABLE identifiers RENAME TO identifiers_by_value;
  CREATE TABLE identifiers (
    tenant      INTEGER NOT NULL,
    type        INTEGER NOT NULL,
    value       TEXT    NOT NULL,
    node        INTEGER NOT NULL,
    raw         TEXT,
    received_at INTEGER,
    trace_id    BLOB,
    user_index  INTEGER,
    PRIMARY KEY (node, type, value)
  ) STRICT, WITHOUT ROWID;`;

/** By the index, node after node: sorting all of them at once would take as much memory as they do. */
const ROWS = `
  INSERT INTO identifiers (tenant, type, value, node, raw, received_at, trace_id, user_index)
    SELECT tenant, type, value, node, raw, received_at, trace_id, user_index
    FROM identifiers_by_value INDEXED BY identifiers_by_node ORDER BY node, type, value;
  DROP TABLE identifiers_by_value;`;

interface Row extends Key {
  readonly tenant: number;
  readonly node: number;
  /** Given to the node when it was made, together with all others of the kind. */
  readonly isFirst: boolean;
}

export function keysByHash(database: DatabaseSync): void {
  database.exec(TABLES);
  database.prepare('INSERT INTO key_secret VALUES (?)').run(randomBytes(SECRET_BYTES));
  database.exec(ROWS);
  const hashOf = hashesOf(database);
  const insert = database.prepare('INSERT INTO match_keys VALUES (?, ?, ?, ?)');
  let piece = new Piece();
  for (const rows of rowsByNode(database)) {
    const together = rows.filter(({ isFirst }) => isFirst);
    for (const row of rows) {
      const { tenant, type, value, node } = row;
      const company = row === together[0] ? companyOf(hashOf, tenant, together) : null;
      piece.add(hashOf(tenant, IDENTIFIER_TYPES.indexOf(type), value), node, company);
    }
    if (piece.count < PIECE_KEYS) continue;
    piece.insert(insert);
    piece = new Piece();
  }
  piece.insert(insert);
}

/** Strongest first. */
function* rowsByNode(database: DatabaseSync): Generator<Row[]> {
  const statement = database.prepare(
    'SELECT tenant, type, value, node, received_at IS NULL FROM identifiers ORDER BY node, type, value',
  );
  statement.setReturnArrays(true);
  let rows: Row[] = [];
  for (const row of statement.iterate() as unknown as Iterable<[number, number, string, number, number]>) {
    const [tenant, typeNo, value, node, isFirst] = row;
    const type = IDENTIFIER_TYPES[typeNo];
    if (type === undefined) throw new Error(`node ${node} has an identifier of the unknown type ${typeNo}`);
    if (rows.length > 0 && rows[0]?.node !== node) {
      yield rows;
      rows = [];
    }
    rows.push({ tenant, type, value, node, isFirst: isFirst === 1 });
  }
  if (rows.length > 0) yield rows;
}

class Piece {
  count = 0;
  readonly #hashes: number[] = [];
  readonly #rests: number[] = [];
  readonly #nodes: number[] = [];
  readonly #companies: (number | null)[] = [];

  add({ hash, rest }: KeyHash, node: number, company: number | null): void {
    this.#hashes.push(hash);
    this.#rests.push(rest);
    this.#nodes.push(node);
    this.#companies.push(company);
    this.count += 1;
  }

  /** In the order of their hashes. */
  insert(statement: StatementSync): void {
    const hashes = Float64Array.from(this.#hashes);
    const order = Uint32Array.from(hashes.keys()).sort((one, other) => (hashes[one] ?? 0) - (hashes[other] ?? 0));
    for (const at of order) {
      statement.run(hashes[at] ?? 0, this.#rests[at] ?? 0, this.#nodes[at] ?? 0, this.#companies[at] ?? null);
    }
  }
}
