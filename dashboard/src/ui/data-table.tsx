/**
 * A real table. On a phone each row becomes a card, with the columns' labels beside the values; the roles are written
 * out because browsers forget them when a table is laid out as something else. With `onRow`, a click anywhere on a row
 * opens it, and so does the button at its end, which is what keyboard and screen reader use.
 */

// The roles are redundant only until CSS makes a grid of the table.
/* oxlint-disable jsx-a11y/no-redundant-roles, jsx-a11y/no-interactive-element-to-noninteractive-role */

import { type MouseEvent, type ReactNode, useId } from 'react';
import { Icon } from './icons.tsx';

export interface Column<Row> {
  readonly key: string;
  readonly label: string;
  readonly align?: 'start' | 'end';
  readonly render: (row: Row) => ReactNode;
}

interface DataTableProps<Row> {
  readonly caption: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly rowKey: (row: Row) => string;
  readonly onRow?: (row: Row) => void;
  readonly isSelected?: (row: Row) => boolean;
}

export function DataTable<Row>(props: DataTableProps<Row>): ReactNode {
  const { caption, columns, rows, rowKey, onRow, isSelected } = props;
  return (
    <div className="table-frame">
      <table className="table" role="table">
        <caption className="for-screen-readers">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map(({ key, label, align }) => (
              <th key={key} scope="col" role="columnheader" className={alignName(align)}>
                {label === '' ? <span className="for-screen-readers">Actions</span> : label}
              </th>
            ))}
            {onRow !== undefined && (
              <th scope="col" role="columnheader" className="table__open">
                <span className="for-screen-readers">Open</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <TableRow key={rowKey(row)} row={row} columns={columns} onRow={onRow} isSelected={isSelected?.(row)} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface TableRowProps<Row> {
  readonly row: Row;
  readonly columns: readonly Column<Row>[];
  readonly onRow: ((row: Row) => void) | undefined;
  readonly isSelected: boolean | undefined;
}

function TableRow<Row>({ row, columns, onRow, isSelected = false }: TableRowProps<Row>): ReactNode {
  const id = useId();
  const names = [
    'table__row',
    onRow === undefined ? '' : 'table__row--opens',
    isSelected ? 'table__row--selected' : '',
  ];
  const openByClick = (event: MouseEvent<HTMLTableRowElement>): void => {
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest('a, button, input, select, summary, label') !== null || hasSelection()) return;
    onRow?.(row);
  };
  return (
    <tr
      role="row"
      className={names.filter((name) => name !== '').join(' ')}
      onClick={onRow === undefined ? undefined : openByClick}
    >
      {columns.map(({ key, label, align, render }, index) => (
        <td
          key={key}
          role="cell"
          id={index === 0 ? `${id}-first` : undefined}
          className={alignName(align)}
          data-label={label}
        >
          {render(row)}
        </td>
      ))}
      {onRow !== undefined && (
        <td role="cell" className="table__open">
          <button
            type="button"
            className="icon-button"
            id={`${id}-open`}
            aria-label="Open"
            aria-labelledby={`${id}-open ${id}-first`}
            onClick={() => onRow(row)}
          >
            <Icon name="next" />
          </button>
        </td>
      )}
    </tr>
  );
}

function alignName(align: 'start' | 'end' | undefined): string | undefined {
  return align === 'end' ? 'table__end' : undefined;
}

/** Selecting text in a row is for copying; it does not open the row. */
function hasSelection(): boolean {
  return getSelection()?.type === 'Range';
}
