/**
 * The baseline of end-to-end: a loop that inserts the rows that the processor makes of the same people and events,
 * with prepared statements, into the same tables with the same indexes and settings, in transactions and batches of the
 * same size. It parses nothing, looks nothing up and decides nothing; texts, ids and hashes are made before the clock
 * starts (texts repeat after a few thousand, which costs SQLite nothing).
 * Events are packed into blocks and runs by the store's own code, for those are the rows that there are.
 * Like the processor it writes a known person once a transaction and a new one once a batch, keeps counts in memory
 * until the commit, and syncs every five seconds. `node bench/raw-insert.ts JSON`, see `RawInsertJob`; prints a `RawInsertResult`.
 */

import { randomFillSync } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { EventGroups } from '../src/backends/embedded/store/event-groups.ts';
import { hashesOf } from '../src/backends/embedded/store/match-keys.ts';
import { openStoreFile } from '../src/backends/embedded/store/schema.ts';
import { GROUP_EVENTS } from '../src/backends/embedded/store/writer.ts';
import { HOUR_MS, MINUTE_MS } from '../src/model.ts';
import type { HashOfKey } from '../src/views/keyed-hash.ts';
import { identifiersOf, peopleOf, type Population, USERS_PER_REQUEST } from './people-generator.ts';
import { mulberry32, userOf } from './requests.ts';

export interface RawInsertJob {
  /** A file that is not there yet. */
  readonly file: string;
  readonly population: Population;
  /** Of one event each; a multiple of what a request holds. */
  readonly users: number;
  readonly transactionUsers: number;
  /** Users between which a new person is written once. */
  readonly batchUsers: number;
}

export interface RawInsertResult {
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly transactions: number;
  readonly people: number;
}

const DURABLE_INTERVAL_MILLISECONDS = 5_000;
const TENANT = 1;
const KEY_ID = 'key_000000000000';
/** About how fast events come in, for their times. */
const EVENTS_PER_MILLISECOND = 80;

const TEXTS = 4_096;
const ID_BYTES = 16;
const TIME_BYTES = 6;

interface EventTexts {
  readonly name: string;
  readonly revenue: number;
  readonly currency: string;
  readonly properties: string;
  readonly known: string;
  readonly jitter: number;
}

/** All that the loop writes, made before. */
interface Material {
  readonly drawn: Uint32Array;
  readonly identifiers: readonly (readonly [userId: string, email: string, anonId: string])[];
  readonly events: readonly EventTexts[];
  readonly nodeIds: Buffer;
  readonly traceIds: Buffer;
  readonly startedAt: number;
}

/** Of every person in turn, the hash of each key. */
interface HashedKeys {
  readonly hashes: Float64Array;
  readonly rests: Float64Array;
}

/** Indexes in IDENTIFIER_TYPES, in the order of `Material.identifiers`. */
const KEY_TYPES = [0, 1, 3] as const;

interface Bucket {
  readonly width: number;
  readonly start: number;
  readonly name: string;
  events: number;
  currency: string;
  revenue: number;
}

class Loop {
  transactions = 0;
  people = 0;
  private readonly database: DatabaseSync;
  private readonly job: RawInsertJob;
  private readonly material: Material;
  private readonly keys: HashedKeys;
  private readonly statements: ReturnType<typeof prepare>;
  /** By person: the number of the node, 0 for none yet; events so far; and those that are not written yet. */
  private readonly nodes: Uint32Array;
  private readonly stored: Uint32Array;
  private readonly waiting: Uint32Array;
  /** Known people who have events that are not written yet. */
  private touched: number[] = [];
  private readonly buckets = new Map<string, Bucket>();
  private readonly groups: EventGroups;
  private event = 0;
  private record = 0;
  /** Events of the transactions so far. */
  private received = 0;
  private syncedAt = performance.now();

  constructor(database: DatabaseSync, job: RawInsertJob, material: Material, keys: HashedKeys) {
    this.database = database;
    this.job = job;
    this.material = material;
    this.keys = keys;
    this.statements = prepare(database);
    this.nodes = new Uint32Array(job.population.people);
    this.stored = new Uint32Array(job.population.people);
    this.waiting = new Uint32Array(job.population.people);
    this.groups = new EventGroups(database, GROUP_EVENTS);
  }

  run(): void {
    const { users, transactionUsers, batchUsers } = this.job;
    while (this.event < users) {
      const end = Math.min(users, this.event + transactionUsers);
      this.database.exec('BEGIN IMMEDIATE');
      while (this.event < end) this.writeBatch(Math.min(end, this.event + batchUsers));
      this.writeTouched();
      this.groups.flush();
      this.writeSums();
      this.database.exec('COMMIT');
      this.transactions += 1;
      if (performance.now() - this.syncedAt > DURABLE_INTERVAL_MILLISECONDS) this.sync();
    }
    this.sync();
  }

  private writeBatch(end: number): void {
    const fresh: number[] = [];
    const first = this.event;
    while (this.event < end) this.writeRecord(fresh);
    for (const person of fresh) this.writeNode(person, textOf(this.material.events, first + person).known);
  }

  private writeTouched(): void {
    const { events: texts, startedAt } = this.material;
    const known = this.touched.map((person) => this.nodes[person] ?? 0);
    const order = Array.from(known.keys()).sort((a, b) => (known[a] ?? 0) - (known[b] ?? 0));
    const lastSeen = startedAt + Math.floor(this.event / EVENTS_PER_MILLISECOND);
    for (const at of order) {
      const person = this.touched[at] ?? 0;
      const events = (this.stored[person] = (this.stored[person] ?? 0) + (this.waiting[person] ?? 0));
      this.waiting[person] = 0;
      const { known: text } = textOf(texts, this.event + person);
      this.statements.updateNode.run(events, startedAt, lastSeen, text, lastSeen, known[at] ?? 0);
    }
    this.touched = [];
  }

  private writeRecord(fresh: number[]): void {
    const { drawn, events, traceIds, startedAt } = this.material;
    const firstEvent = this.event;
    this.record += 1;
    this.groups.forRecord(this.record);
    const receivedAt = startedAt + Math.floor(firstEvent / EVENTS_PER_MILLISECOND);
    for (let user = 0; user < USERS_PER_REQUEST; user += 1) {
      const person = drawn[this.event] ?? 0;
      const text = textOf(events, this.event);
      this.event += 1;
      let node = this.nodes[person] ?? 0;
      if (node === 0) {
        this.people += 1;
        node = this.people;
        this.nodes[person] = node;
        fresh.push(person);
      } else if (this.waiting[person] === 0) {
        this.touched.push(person);
      }
      this.waiting[person] = (this.waiting[person] ?? 0) + 1;
      const timestamp = receivedAt - text.jitter;
      const { name, revenue, currency, properties } = text;
      const event = { eventIndex: 0, name, timestamp, revenue, currency, value: null, properties };
      this.groups.add(TENANT, this.event, node, this.record, user, event);
      this.count(MINUTE_MS, timestamp, text);
      this.count(HOUR_MS, timestamp, text);
    }
    const traceId = idOf(traceIds, this.record - 1);
    this.groups.insertRecord.run(
      this.record,
      TENANT,
      traceId,
      receivedAt,
      receivedAt,
      0,
      USERS_PER_REQUEST,
      0,
      firstEvent + 1,
      USERS_PER_REQUEST,
      null,
      KEY_ID,
      null,
    );
  }

  private writeNode(person: number, known: string): void {
    const { identifiers, nodeIds, traceIds, startedAt } = this.material;
    const node = this.nodes[person] ?? 0;
    const events = this.waiting[person] ?? 0;
    this.waiting[person] = 0;
    this.stored[person] = events;
    const at = startedAt + Math.floor(this.event / EVENTS_PER_MILLISECOND);
    const traceId = idOf(traceIds, this.record - 1);
    const id = idOf(nodeIds, node - 1);
    this.statements.insertNode.run(node, TENANT, id, at, traceId, 0, events, at, at, known, at, NAMES);
    const texts = identifiers[person] ?? ['', '', ''];
    const { hashes, rests } = this.keys;
    for (let n = 0; n < KEY_TYPES.length; n += 1) {
      const at = person * KEY_TYPES.length + n;
      this.statements.insertKey.run(hashes[at] ?? 0, rests[at] ?? 0, node);
      this.statements.insertIdentifier.run(TENANT, KEY_TYPES[n] ?? 0, texts[n] ?? '', node, null, null, null, null);
    }
  }

  private count(width: number, timestamp: number, { name, revenue, currency }: EventTexts): void {
    const start = Math.floor(timestamp / width) * width;
    const key = `${width} ${start} ${currency} ${name}`;
    let bucket = this.buckets.get(key);
    if (bucket === undefined) {
      bucket = { width, start, name, currency, events: 0, revenue: 0 };
      this.buckets.set(key, bucket);
    }
    bucket.events += 1;
    bucket.revenue += revenue;
  }

  private writeSums(): void {
    const { addToCounts, addToLedger, addToReceipts, advance, updateSequence } = this.statements;
    for (const { width, start, name, currency, events, revenue } of this.buckets.values()) {
      addToCounts.run(TENANT, width, start, name, currency, events, revenue);
    }
    this.buckets.clear();
    const hour = Math.floor(this.material.startedAt / HOUR_MS) * HOUR_MS;
    addToLedger.run(TENANT, hour, this.event);
    const receivedAt = this.material.startedAt + Math.floor(this.event / EVENTS_PER_MILLISECOND);
    const minute = Math.floor(receivedAt / MINUTE_MS) * MINUTE_MS;
    addToReceipts.run(TENANT, minute, this.event - this.received);
    this.received = this.event;
    advance.run(0, this.record);
    updateSequence.run(this.people + 1, 'node');
    updateSequence.run(this.record + 1, 'record');
    updateSequence.run(this.event + 1, 'event');
  }

  private sync(): void {
    this.syncedAt = performance.now();
    this.database.exec(`
      PRAGMA synchronous = FULL;
      BEGIN IMMEDIATE;
      UPDATE sequences SET next = next WHERE name = 'node';
      COMMIT;
      PRAGMA synchronous = NORMAL`);
  }
}

/** As large as the number of any names. */
const NAMES = 2 ** 52 + 1;

function prepare(database: DatabaseSync) {
  return {
    insertNode: database.prepare('INSERT INTO plain_nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)'),
    updateNode: database.prepare(
      'UPDATE plain_nodes SET events = ?, first_seen = ?, last_seen = ?, known = ?, written_at = ? WHERE no = ?',
    ),
    insertKey: database.prepare('INSERT INTO plain_match_keys VALUES (?, ?, ?)'),
    insertIdentifier: database.prepare('INSERT INTO identifiers VALUES (?, ?, ?, ?, ?, ?, ?, ?)'),
    addToCounts: database.prepare(
      `INSERT INTO counts VALUES (?, ?, ?, ?, ?, 0, ?, ?)
       ON CONFLICT DO UPDATE SET events = events + excluded.events, revenue = revenue + excluded.revenue`,
    ),
    addToLedger: database.prepare(
      `INSERT INTO ledger (tenant, hour, shard, users_received, users_stored, events_received, events_stored)
       VALUES (?1, ?2, 0, ?3, ?3, ?3, ?3)
       ON CONFLICT DO UPDATE SET users_stored = excluded.users_stored, events_stored = excluded.events_stored`,
    ),
    addToReceipts: database.prepare(
      `INSERT INTO receipts VALUES (?1, ?2, 0, ?3, 0, ?3) ON CONFLICT DO UPDATE SET
         users_accepted = users_accepted + excluded.users_accepted,
         events_accepted = events_accepted + excluded.events_accepted`,
    ),
    advance: database.prepare(
      "INSERT INTO positions (log, partition, position) VALUES ('', ?, ?) ON CONFLICT DO UPDATE SET position = excluded.position",
    ),
    updateSequence: database.prepare('UPDATE sequences SET next = ? WHERE name = ?'),
  };
}

function prepareMaterial(population: Population, users: number): Material {
  const nextPerson = peopleOf(population);
  const startedAt = Date.now();
  const random = mulberry32(20_260_303);
  return {
    startedAt,
    drawn: Uint32Array.from({ length: users }, () => nextPerson()),
    identifiers: Array.from({ length: population.people }, (_, person) => {
      const { user_id, email, anon_id } = identifiersOf(person);
      return [user_id, email, anon_id] as const;
    }),
    events: Array.from({ length: TEXTS }, () => makeTexts(random, startedAt)),
    nodeIds: makeIds(population.people, startedAt),
    traceIds: makeIds(users / USERS_PER_REQUEST, startedAt),
  };
}

/** Under the secret of the file that they go to. */
function hashedKeys({ identifiers }: Material, tenant: number, hashOf: HashOfKey): HashedKeys {
  const length = identifiers.length * KEY_TYPES.length;
  const keys = {
    hashes: new Float64Array(length),
    rests: new Float64Array(length),
  };
  for (const [person, texts] of identifiers.entries()) {
    for (const [n, type] of KEY_TYPES.entries()) {
      const { hash, rest } = hashOf(tenant, type, texts[n] ?? '');
      keys.hashes[person * KEY_TYPES.length + n] = hash;
      keys.rests[person * KEY_TYPES.length + n] = rest;
    }
  }
  return keys;
}

/** As the processor stores them: what is a column of its own is not among the properties. */
function makeTexts(random: () => number, startedAt: number): EventTexts {
  const { user_properties: userProperties, events } = userOf(random);
  const { event_name: name, revenue, timestamp: _timestamp, ...properties } = events[0] ?? {};
  const traceId = '00000000-0000-7000-8000-000000000000';
  return {
    name: String(name),
    revenue: Number(revenue),
    currency: String(properties.currency),
    properties: JSON.stringify(properties),
    known: JSON.stringify([[startedAt, traceId, 42, {}, userProperties]]),
    jitter: Math.floor(random() * 1000),
  };
}

/** Beginning with the time, like those of nodes and traces, so that they are inserted about in order. */
function makeIds(count: number, startedAt: number): Buffer {
  const ids = randomFillSync(Buffer.allocUnsafe(count * ID_BYTES));
  for (let n = 0; n < count; n += 1) ids.writeUIntBE(startedAt + Math.floor(n / 8), n * ID_BYTES, TIME_BYTES);
  return ids;
}

function idOf(ids: Buffer, at: number): Buffer {
  return ids.subarray(at * ID_BYTES, (at + 1) * ID_BYTES);
}

function textOf(texts: readonly EventTexts[], n: number): EventTexts {
  const text = texts[n % texts.length];
  if (text === undefined) throw new Error('no texts were made');
  return text;
}

const job = JSON.parse(process.argv[2] ?? '') as RawInsertJob;
const material = prepareMaterial(job.population, job.users);
const database = openStoreFile(job.file, 'writer');
// The store has match keys, and what changes of nodes, in sorted runs; this is what they are without.
database.exec(`
  CREATE TABLE plain_nodes (
    no INTEGER PRIMARY KEY, tenant INTEGER, id BLOB, received_at INTEGER, trace_id BLOB, user_index INTEGER,
    events INTEGER, first_seen INTEGER, last_seen INTEGER, known TEXT, written_at INTEGER, shape_hash INTEGER
  ) STRICT;
  CREATE UNIQUE INDEX plain_nodes_by_id ON plain_nodes (id);
  CREATE TABLE plain_match_keys (hash INTEGER, rest INTEGER, node INTEGER, PRIMARY KEY (hash, rest))
    STRICT, WITHOUT ROWID`);
const keys = hashedKeys(material, TENANT, hashesOf(database));
const cpuBefore = process.cpuUsage();
const from = performance.now();
const loop = new Loop(database, job, material, keys);
loop.run();
const seconds = (performance.now() - from) / 1000;
const cpu = process.cpuUsage(cpuBefore);
database.close();
const result: RawInsertResult = {
  seconds,
  cpuSeconds: (cpu.user + cpu.system) / 1e6,
  transactions: loop.transactions,
  people: loop.people,
};
console.log(JSON.stringify(result));
