/**
 * The tables of sorted runs of one name.
 *
 *   NAME_runs     one row for each run
 *   NAME_blocks   the entries of a run in order, up to `blockRows` in a row (columnar/column-block.ts), found by their
 *                 first key; an entry with many bytes has a row of its own
 *   NAME_filters  the Bloom filters of a run; one for each part of it that was written at once
 */

/** With the `name` and `hasFilters` of the `RunsShape`. */
export function sortedRunsSchema(name: string, hasFilters = true): string {
  const filters = `
    CREATE TABLE ${name}_filters (
      no     INTEGER PRIMARY KEY,
      run    INTEGER NOT NULL,
      first  INTEGER NOT NULL,
      filter BLOB    NOT NULL
    ) STRICT;
    CREATE INDEX ${name}_filters_by_run ON ${name}_filters (run, first);`;
  return `
    CREATE TABLE ${name}_runs (
      group_no    INTEGER NOT NULL,
      no          INTEGER NOT NULL,
      bytes       INTEGER NOT NULL,
      merged_into INTEGER,
      PRIMARY KEY (group_no, no)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE ${name}_blocks (
      no      INTEGER PRIMARY KEY,
      run     INTEGER NOT NULL,
      first   BLOB    NOT NULL,
      entries BLOB    NOT NULL,
      crc     INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX ${name}_blocks_by_first ON ${name}_blocks (run, first);
    ${hasFilters ? filters : ''}`;
}
