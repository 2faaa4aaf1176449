/** What one user would change, as the server predicts it: links, merges, refusals, properties, and what it warns of. */

import type { ReactNode } from 'react';
import { REFUSAL_WORDS, shortId } from '../identity-names.ts';
import { isNewId } from '../predicted-identity.ts';
import { formatNumber } from '../time.tsx';
import type { PredictedUser } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { jsonSource } from '../ui/json-lines.ts';
import { IdentifierText } from './identifier-icon.tsx';
import '../styles/identity.css';
import '../styles/predicted-changes.css';

const CHANGES_SHOWN_MAX = 50;
const VALUE_CHARACTERS_MAX = 120;

export function PredictedChanges({ user, isAlone }: { user: PredictedUser; isAlone: boolean }): ReactNode {
  const { merges, refusals, property_changes: changes, warnings, violations } = user;
  const shown = changes.slice(0, CHANGES_SHOWN_MAX);
  const left = changes.length - shown.length + user.property_changes_omitted;
  return (
    <section className="predicted" aria-label={`users[${user.userIndex}]`}>
      {!isAlone && (
        <h3>
          <code>users[{user.userIndex}]</code>
        </h3>
      )}
      <ul className="words">
        <li>
          {formatNumber(user.events)} {user.events === 1 ? 'event' : 'events'} would be stored.
        </li>
        {user.duplicate_events > 0 && (
          <li>{formatNumber(user.duplicate_events)} would not: stored before, by $event_id.</li>
        )}
        {user.new_identifiers.map(({ type, value }) => (
          <li key={type}>
            Links <IdentifierText type={type} value={value} />.
          </li>
        ))}
        {merges.map(({ from, into, via }) => (
          <li key={`${from} ${into}`}>
            Merges {nameOf(from)} into {nameOf(into)} via <IdentifierText type={via.type} value={via.value} />.
          </li>
        ))}
        {refusals.map(({ type, value, reason, rule }) => (
          <li key={`${type} ${reason}`}>
            <Badge tone="warn">not linked</Badge> <IdentifierText type={type} value={value} />:{' '}
            {REFUSAL_WORDS[reason].long} (rule {rule})
          </li>
        ))}
        {warnings
          .filter((warning) => !ABOUT_REFUSAL.test(warning))
          .map((warning) => (
            <li key={warning}>
              <Badge tone="warn">warning</Badge> {warning}
            </li>
          ))}
        {violations.map(({ path, message, mode }) => (
          <li key={`${path} ${message}`}>
            <Badge tone={mode === 'enforce' ? 'bad' : 'warn'}>tracking plan</Badge> <code>{path}</code> {message}
          </li>
        ))}
      </ul>
      {shown.length > 0 && (
        <DataTable
          caption="Properties that would change"
          columns={CHANGE_COLUMNS}
          rows={shown}
          rowKey={({ kind, name }) => `${kind} ${name}`}
        />
      )}
      {left > 0 && <p className="muted">And {formatNumber(left)} more properties.</p>}
    </section>
  );
}

type PropertyChange = PredictedUser['property_changes'][number];

const CHANGE_COLUMNS: readonly Column<PropertyChange>[] = [
  { key: 'name', label: 'Property', render: ({ name }) => <bdi>{name}</bdi> },
  { key: 'before', label: 'Before', render: ({ before }) => valueText(before) },
  { key: 'after', label: 'After', render: ({ after }) => valueText(after) },
];

/** A refused link is said by the refusal, with its rule. */
const ABOUT_REFUSAL = / was not linked: /;

function nameOf(id: string): ReactNode {
  return isNewId(id) ? 'the new profile' : <code title={id}>{shortId(id)}</code>;
}

/** Null is not set: a property that is null is deleted. */
function valueText(value: unknown): ReactNode {
  if (value === null || value === undefined) return <span className="muted">not set</span>;
  const text = jsonSource(value);
  return <code>{text.length > VALUE_CHARACTERS_MAX ? `${text.slice(0, VALUE_CHARACTERS_MAX)}…` : text}</code>;
}
