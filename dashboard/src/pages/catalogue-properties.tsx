/** The properties of an event, or of people, as a table: types, share, examples, and what is new about them. */

import type { ReactNode } from 'react';
import { formatNumber, Time } from '../time.tsx';
import type { CatalogueEventDetails, CatalogueProperty } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { type IsNew, propertyMark } from './catalogue-changes.ts';

interface PropertyTableProps {
  readonly caption: string;
  readonly entry: Pick<CatalogueEventDetails, 'properties' | 'other_properties'>;
  readonly isNew: IsNew;
}

export function PropertyTable({ caption, entry, isNew }: PropertyTableProps): ReactNode {
  const { properties, other_properties: others } = entry;
  if (properties.length === 0) return <p className="muted">None of them has a property.</p>;
  return (
    <>
      <DataTable
        caption={`${caption}, the most frequent first`}
        rows={properties}
        rowKey={({ name }) => name}
        columns={[
          {
            key: 'name',
            label: 'Property',
            render: (property) => (
              <>
                <code>
                  <bdi>{property.name}</bdi>
                </code>{' '}
                <PropertyMark property={property} isNew={isNew} />
              </>
            ),
          },
          { key: 'types', label: 'Type', render: (property) => <Types property={property} isNew={isNew} /> },
          { key: 'share', label: 'Share', render: ({ share }) => <Share share={share} /> },
          { key: 'examples', label: 'Examples', render: (property) => <Examples property={property} /> },
          { key: 'last', label: 'Last seen', render: ({ last_seen: at }) => <Time at={at} relative /> },
        ]}
      />
      {others > 0 && (
        <p className="muted">
          And {formatNumber(others)} values of other properties: at most 300 are listed. Names with ids in them are a
          usual cause.
        </p>
      )}
    </>
  );
}

function PropertyMark({ property, isNew }: { property: CatalogueProperty; isNew: IsNew }): ReactNode {
  const mark = propertyMark(property, isNew);
  if (mark === null) return null;
  return <Badge tone={mark === 'new' ? 'good' : 'warn'}>{mark === 'new' ? 'new' : 'type changed'}</Badge>;
}

function Types({ property: { types }, isNew }: { property: CatalogueProperty; isNew: IsNew }): ReactNode {
  return (
    <ul className="catalogue-types">
      {types.map(({ type, share, first_seen: at }) => (
        <li key={type}>
          {type}
          {types.length > 1 && <span className="muted"> {percent(share)}</span>}
          {types.length > 1 && type !== 'null' && isNew(at) && (
            <span className="muted">
              , since <Time at={at} relative />
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

function Share({ share }: { share: number }): ReactNode {
  return (
    <span className="catalogue-share">
      <span className="catalogue-share__bar" aria-hidden="true">
        <span style={{ width: `${100 * share}%` }} />
      </span>
      {percent(share)}
    </span>
  );
}

function Examples({ property: { examples, is_personal: isPersonal } }: { property: CatalogueProperty }): ReactNode {
  if (isPersonal) return <Badge tone="quiet">personal</Badge>;
  if (examples.length === 0) return <span className="muted">none</span>;
  return (
    <ul className="catalogue-examples">
      {examples.map((example) => (
        <li key={example}>
          <code>
            <bdi>{example}</bdi>
          </code>
        </li>
      ))}
    </ul>
  );
}

/** Neither 0 % for what there is, nor 100 % for what is not in all. */
function percent(share: number): string {
  if (share > 0 && share < 0.01) return '< 1 %';
  if (share < 1 && share > 0.99) return '> 99 %';
  return `${Math.round(100 * share)} %`;
}
