/**
 * Parquet, written row group by row group, so that memory stays flat however much there is: a group ends after 50,000
 * rows or 32 MB of text. Times are TIMESTAMP in milliseconds, UTC. `revenue` and `event_value` are DOUBLE: a number with
 * more digits than a double holds is rounded here, and here alone; `properties` are JSON text and keep theirs. A parquet
 * file is whole only with its end, so an interrupted export starts over.
 */

import type { Column } from './export-shape.ts';

const GROUP_ROWS_MAX = 50_000;
const GROUP_CHARACTERS_MAX = 32 * 1_024 * 1_024;
const TYPES = { text: 'STRING', integer: 'INT32', number: 'DOUBLE', time: 'TIMESTAMP' } as const;

type Value = string | number | Date | null;

/** One array a column. */
type Group = readonly Value[][];

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
