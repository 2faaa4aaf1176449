/**
 * The formats of an export: events and profiles as JSON text, exactly that of the HTTP API, and as rows of columns with the
 * same names. What came as JSON stays the text that it was, so numbers keep their digits.
 *
 * CSV is as in RFC 4180: CRLF line ends, cells with a comma, quote or line break are quoted, quotes are doubled. Null is an
 * empty cell, an empty string is `""`. In parquet, times are TIMESTAMP in milliseconds, UTC.
 */

import { jsonText, raw } from '../api/responses.ts';
import { eventJson, profileJson } from '../api/stored-json.ts';
import { IDENTIFIER_TYPES } from '../model.ts';
import type { Provenance, StoredEvent, StoredProfile } from '../store.ts';
import { isoTime } from './local-time.ts';

/** Times are numbers, in milliseconds. Numbers are JSON text, so that text formats keep every digit. */
type Cell = string | number | null;

interface Column<Row> {
  readonly name: string;
  readonly kind: 'text' | 'integer' | 'number' | 'time';
  readonly nullable: boolean;
  readonly cell: (row: Row) => Cell;
}

export interface Shape<Row> {
  readonly noun: string;
  readonly columns: readonly Column<Row>[];
  json(row: Row): string;
}

function column<Row>(
  name: string,
  kind: Column<Row>['kind'],
  cell: Column<Row>['cell'],
  nullable = false,
): Column<Row> {
  return { name, kind, nullable, cell };
}

export const EVENT_SHAPE: Shape<StoredEvent> = {
  noun: 'event',
  columns: [
    column('id', 'text', ({ id }) => id),
    column('event_name', 'text', ({ eventName }) => eventName),
    column('timestamp', 'time', ({ timestamp }) => timestamp),
    column('received_at', 'time', ({ receivedAt }) => receivedAt),
    column('revenue', 'number', ({ revenue }) => revenue, true),
    column('event_value', 'number', ({ eventValue }) => eventValue, true),
    column('properties', 'text', ({ properties }) => properties),
    column('profile_id', 'text', ({ profileId }) => profileId, true),
    column('trace_id', 'text', ({ traceId }) => traceId),
    column('userIndex', 'integer', ({ userIndex }) => String(userIndex)),
    column('key_id', 'text', ({ keyId }) => keyId),
  ],
  json: (event) => jsonText(eventJson(event)),
};

export const PROFILE_SHAPE: Shape<StoredProfile> = {
  noun: 'profile',
  columns: [
    column('id', 'text', ({ id }) => id),
    column('merged_ids', 'text', ({ mergedIds }) => JSON.stringify(mergedIds)),
    ...IDENTIFIER_TYPES.map((type) =>
      column<StoredProfile>(type, 'text', ({ identifiers }) => JSON.stringify(identifiers[type])),
    ),
    column('profile_fields', 'text', ({ profileFields }) => valuesText(profileFields)),
    column('user_properties', 'text', ({ userProperties }) => valuesText(userProperties)),
    column('first_seen', 'time', ({ firstSeen }) => firstSeen),
    column('last_seen', 'time', ({ lastSeen }) => lastSeen),
    column('event_count', 'integer', ({ eventCount }) => String(eventCount)),
  ],
  json: (profile) => jsonText(profileJson(profile, false)),
};

function valuesText(values: ReadonlyMap<string, Provenance>): string {
  return jsonText(new Map([...values].map(([name, { value }]) => [name, raw(value)])));
}

const LINE_END = '\r\n';

/**
 * Where a formula may begin: at the start of a cell, and behind what some spreadsheets take for the end of one (a semicolon,
 * where commas are for decimals). They skip blanks and invisible characters, and know the wide forms of the signs.
 */
const FORMULA = /(?<=^|[;\t\r\n])(?=[\s\p{Cf}]*[=+\-@＝＋－＠])|^(?=[\t\r\n])/gu;
const HIDDEN = /(?![\t\r\n])\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu;

export function csvHeader(columns: readonly { readonly name: string }[]): string {
  return `${columns.map(({ name }) => quoted(name)).join(',')}${LINE_END}`;
}

/**
 * Events contain untrusted input, and spreadsheets run cells that begin with `=`, `+`, `-` or `@` as formulas. So text
 * is neutralised unless --raw is given: an apostrophe is put before such a character, and control and bidirectional
 * characters, which disguise what a cell contains, are escaped. JSON stays JSON with the same values, except for
 * apostrophes after a semicolon. Numbers and times are never changed.
 */
export function csvLine<Row>(columns: readonly Pick<Column<Row>, 'kind' | 'cell'>[], row: Row, isRaw: boolean): string {
  const cells = columns.map(({ kind, cell }) => {
    const value = cell(row);
    if (value === null) return '';
    if (typeof value === 'number') return isoTime(value);
    return quoted(isRaw || kind !== 'text' ? value : neutralised(value));
  });
  return `${cells.join(',')}${LINE_END}`;
}

function neutralised(text: string): string {
  const visible = text.replace(HIDDEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return visible.replace(FORMULA, "'");
}

function quoted(text: string): string {
  return text === '' || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const GROUP_ROWS_MAX = 50_000;
const GROUP_CHARACTERS_MAX = 32 * 1_024 * 1_024;
const TYPES = { text: 'STRING', integer: 'INT32', number: 'DOUBLE', time: 'TIMESTAMP' } as const;

type Value = string | number | Date | null;

/** One array a column. */
type Group = readonly Value[][];

/**
 * Row group by row group, so that memory stays flat however much there is. `revenue` and `event_value` are DOUBLE: a number
 * with more digits than a double holds is rounded here, and here alone; `properties` are JSON text and keep theirs.
 */
export async function writeParquet<Row>(
  file: string,
  columns: readonly Column<Row>[],
  rows: AsyncIterable<Row>,
): Promise<void> {
  // Loaded here because no other command needs it.
  const { fileWriter, ParquetWriter, schemaFromColumnData } = await import('hyparquet-writer');
  const columnData = (group: Group) =>
    columns.map(({ name, kind, nullable }, index) => ({ name, type: TYPES[kind], nullable, data: group[index] ?? [] }));
  const empty = columns.map(() => []);
  const writer = new ParquetWriter({
    writer: fileWriter(file),
    schema: schemaFromColumnData({ columnData: columnData(empty) }),
  });
  for await (const group of groupsOf(columns, rows)) {
    await writer.write({ columnData: columnData(group), rowGroupSize: GROUP_ROWS_MAX });
  }
  await writer.finish();
}

async function* groupsOf<Row>(columns: readonly Column<Row>[], rows: AsyncIterable<Row>): AsyncGenerator<Group> {
  let group = columns.map((): Value[] => []);
  let [count, characters] = [0, 0];
  for await (const row of rows) {
    for (const [index, column] of columns.entries()) {
      const value = valueOf(column, row);
      group[index]?.push(value);
      if (typeof value === 'string') characters += value.length;
    }
    count += 1;
    if (count >= GROUP_ROWS_MAX || characters >= GROUP_CHARACTERS_MAX) {
      yield group;
      group = columns.map(() => []);
      [count, characters] = [0, 0];
    }
  }
  if (count > 0) yield group;
}

function valueOf<Row>({ kind, cell }: Column<Row>, row: Row): Value {
  const value = cell(row);
  if (value === null) return null;
  if (typeof value === 'number') return new Date(value);
  return kind === 'text' ? value : Number(value);
}
