/**
 * Identifiers, profile fields and properties of a person, each value with the request that set it.
 * Values are what clients sent, and are shown as text.
 */

import type { ReactNode } from 'react';
import { ExactNumber } from '../exact-json.ts';
import { Link, useAddress, useEnvironment, viewPath } from '../router.tsx';
import { Time } from '../time.tsx';
import { IDENTIFIER_TYPES } from '../api-constants.ts';
import type { Profile, PropertySource } from '../api-types.ts';
import { Card } from '../ui/card.tsx';
import { Json } from '../ui/code.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { IdentifierText } from './identifier-icon.tsx';

const IDENTIFIERS_SHOWN_MAX = 12;

interface NamedValue extends PropertySource {
  readonly name: string;
}

export function PersonProperties({ profile }: { profile: Profile }): ReactNode {
  const environment = useEnvironment();
  const { provenance } = profile;
  const columns: readonly Column<NamedValue>[] = [
    { key: 'name', label: 'Name', render: ({ name }) => <span className="mono">{name}</span> },
    { key: 'value', label: 'Value', render: ({ value }) => <Value value={value} /> },
    {
      key: 'request',
      label: 'Set by',
      render: ({ trace_id: traceId }) => (
        <Link to={viewPath(environment, `traces/${traceId}`)} className="mono">
          {traceId}
        </Link>
      ),
    },
    { key: 'received', label: 'Received', render: ({ received_at: at }) => <Time at={at} /> },
  ];
  return (
    <>
      <Identifiers profile={profile} />
      <ValueCard
        title="User properties"
        emptyText="None yet. They come with user_properties of a user; the newest of each is shown."
        columns={columns}
        rows={namedValues(provenance?.user_properties)}
      />
      <ValueCard
        title="Profile fields"
        emptyText="None yet. They are what identifiers has besides user_id, email, phone_number and anon_id, such as first_name."
        columns={columns}
        rows={namedValues(provenance?.profile_fields)}
      />
    </>
  );
}

function namedValues(properties: Readonly<Record<string, PropertySource>> | undefined): NamedValue[] {
  return Object.entries(properties ?? {})
    .map(([name, one]) => ({ name, value: one.value, trace_id: one.trace_id, received_at: one.received_at }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

interface ValueCardProps {
  readonly title: string;
  readonly emptyText: string;
  readonly columns: readonly Column<NamedValue>[];
  readonly rows: readonly NamedValue[];
}

function ValueCard({ title, emptyText, columns, rows }: ValueCardProps): ReactNode {
  return (
    <Card title={title} className="property-card">
      {rows.length === 0 ? (
        <p className="muted">{emptyText}</p>
      ) : (
        <DataTable caption={title} columns={columns} rows={rows} rowKey={({ name }) => name} />
      )}
    </Card>
  );
}

function Value({ value }: { value: unknown }): ReactNode {
  if (typeof value === 'string') return <span className="property-value">{value}</span>;
  if (typeof value === 'object' && value !== null && !(value instanceof ExactNumber)) return <Json value={value} />;
  return <span className="mono">{String(value)}</span>;
}

function Identifiers({ profile: { identifiers } }: { profile: Profile }): ReactNode {
  const { path } = useAddress();
  const all = IDENTIFIER_TYPES.flatMap((type) => identifiers[type].map((value) => ({ type, value })));
  const shown = all.slice(0, IDENTIFIERS_SHOWN_MAX);
  return (
    <Card title="Identifiers" actions={<Link to={`${path}?tab=identity`}>See how they belong together</Link>}>
      <ul className="identifiers">
        {shown.map(({ type, value }) => (
          <li key={`${type} ${value}`}>
            <IdentifierText type={type} value={value} />
          </li>
        ))}
        {shown.length < all.length && <li className="muted">and {all.length - shown.length} more</li>}
      </ul>
    </Card>
  );
}
