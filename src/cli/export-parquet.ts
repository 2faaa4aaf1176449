/**
 * Parquet, written row group by row group, so that memory stays flat however much there is. Times are TIMESTAMP in
 * milliseconds, UTC. `revenue` and `event_value` are DOUBLE: a number with more digits than a double holds is rounded
 * here, and here alone; `properties` are JSON text and keep theirs. A parquet file is whole only with its end, so an
 * interrupted export starts over.
 */

import type { Cell, Column } from './export-shape.ts';

const ROWS_PER_GROUP = 50_000;
const TYPES = { text: 'STRING', integer: 'INT32', number: 'DOUBLE', time: 'TIMESTAMP' } as const;

export async function writeParquet(
  file: string,
  columns: readonly Column[],
  rows: AsyncIterable<readonly Cell[]>,
): Promise<void> {
  // Loaded here because no other command needs it.
  const { fileWriter, parquetWriteRows } = await import('hyparquet-writer');
  await parquetWriteRows({
    writer: fileWriter(file),
    columns: columns.map(({ name, kind, nullable }) => ({ name, type: TYPES[kind], nullable })),
    rows: recordsOf(columns, rows),
    rowGroupSize: ROWS_PER_GROUP,
  });
}

async function* recordsOf(
  columns: readonly Column[],
  rows: AsyncIterable<readonly Cell[]>,
): AsyncGenerator<Record<string, string | number | Date | null>> {
  for await (const cells of rows) {
    // The names are those of our own columns, not of clients.
    yield Object.fromEntries(columns.map(({ name }, index) => [name, valueOf(cells[index] ?? null)]));
  }
}

function valueOf(cell: Cell): string | number | Date | null {
  if (cell === null) return null;
  if (cell.kind === 'time') return new Date(cell.time);
  return cell.kind === 'number' ? Number(cell.text) : cell.text;
}
