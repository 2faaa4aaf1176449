/**
 * Settings → API keys: all keys of the account, with their state and what looks wrong with them; making, rolling and
 * revoking them. A key exists as text only in the dialog that shows a new one, and is gone when that is closed.
 */

import { useState } from 'react';
import { useEnvironment, useQueryValue } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { Key, KeyList } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { SelectField } from '../ui/field.tsx';
import { useData } from '../use-data.ts';
import { sameNames } from '../key-names.ts';
import { CreateKeyDialog, EditKeyDialog, RevokeKeyDialog, RollKeyDialog } from './key-dialogs.tsx';
import '../styles/keys.css';

/** Often enough to see that a new key was used. */
const RELOAD_MS = 5_000;

const SHOWN = [
  { value: '', label: 'Active keys of this environment' },
  { value: 'active', label: 'Active keys of both environments' },
  { value: 'all', label: 'All keys, also revoked and expired' },
];

type Open = { readonly kind: 'edit' | 'roll' | 'revoke'; readonly key: Key };

export default function KeysPage() {
  const { data, error, reload } = useData<KeyList>('/keys', { everyMs: RELOAD_MS });
  const [shown, setShown] = useQueryValue('show');
  const [dialog, setDialog] = useQueryValue('dialog');
  const [open, setOpen] = useState<Open>();
  const close = (): void => {
    setOpen(undefined);
    if (dialog !== '') setDialog('', { replace: true });
    reload();
  };
  const here = useEnvironment();
  const keys = data?.keys.filter(
    ({ state, environment }) => shown === 'all' || (state === 'active' && (shown === 'active' || environment === here)),
  );
  const create = (
    <Button kind="primary" onClick={() => setDialog('create')}>
      Create key
    </Button>
  );
  return (
    <Page title="API keys" actions={create}>
      <p className="lead">
        Secret keys send events and read everything back: keep them on servers. Publishable keys can only send events,
        and may be used in web pages and apps. A key is shown in full once, when it is created; only its hash is stored.
        A lost key cannot be recovered: replace it.
      </p>
      <Card
        actions={<SelectField label="Show" options={SHOWN} value={shown} onChange={(e) => setShown(e.target.value)} />}
      >
        {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
        {keys === undefined && error === undefined && <Loading what="keys" />}
        {keys?.length === 0 && (
          <Empty title={shown === 'all' ? 'No keys yet' : 'No active keys'}>
            <p>Create one to send events.</p>
          </Empty>
        )}
        {keys !== undefined && keys.length > 0 && (
          <DataTable
            caption="API keys"
            columns={columnsWith(setOpen, sameNames(data?.keys ?? []))}
            rows={keys}
            rowKey={({ id }) => id}
          />
        )}
      </Card>
      <CreateKeyDialog isOpen={dialog === 'create'} onClose={close} onCreated={reload} />
      <EditKeyDialog apiKey={open?.kind === 'edit' ? open.key : undefined} onClose={close} />
      <RollKeyDialog apiKey={open?.kind === 'roll' ? open.key : undefined} onClose={close} onRolled={reload} />
      <RevokeKeyDialog apiKey={open?.kind === 'revoke' ? open.key : undefined} onClose={close} />
    </Page>
  );
}

function columnsWith(open: (which: Open) => void, words: ReadonlyMap<string, string>): Column<Key>[] {
  return [
    { key: 'name', label: 'Name', render: (key) => <KeyName apiKey={key} sameName={words.get(key.id)} /> },
    {
      key: 'key',
      label: 'Key',
      render: ({ prefix, last_four, kind, environment, created_at }) => (
        <div className="key-text">
          <code>
            {prefix}…{last_four}
          </code>
          <p className="muted small">
            {kind}, {environment}
          </p>
          <p className="muted small">
            created <Time at={created_at} relative />
          </p>
        </div>
      ),
    },
    {
      key: 'used',
      label: 'Last used',
      render: ({ last_used_at, last_origin }) =>
        last_used_at === null ? (
          <span className="muted">never</span>
        ) : (
          <div className="key-used">
            <Time at={last_used_at} relative />
            {last_origin !== null && <p className="muted small">last page: {last_origin}</p>}
          </div>
        ),
    },
    { key: 'volume', label: 'Last 7 days', render: (key) => <KeyVolume apiKey={key} /> },
    { key: 'state', label: 'State', render: (key) => <KeyState apiKey={key} /> },
    {
      key: 'actions',
      label: 'Actions',
      align: 'end',
      render: (key) =>
        key.state === 'active' ? (
          <span className="row-actions">
            <Button aria-label={`Edit ${key.name}, …${key.last_four}`} onClick={() => open({ kind: 'edit', key })}>
              Edit
            </Button>
            <Button aria-label={`Roll ${key.name}, …${key.last_four}`} onClick={() => open({ kind: 'roll', key })}>
              Roll
            </Button>
            <Button
              kind="danger"
              aria-label={`Revoke ${key.name}, …${key.last_four}`}
              onClick={() => open({ kind: 'revoke', key })}
            >
              Revoke
            </Button>
          </span>
        ) : null,
    },
  ];
}

function KeyName({ apiKey, sameName }: { apiKey: Key; sameName: string | undefined }) {
  const {
    id,
    name,
    origins,
    rate_limit: limit,
    leak_suspected_at: leakedAt,
    leak_origin: leakOrigin,
    is_unused: isUnused,
    state,
  } = apiKey;
  return (
    <div className="key-name">
      <strong>{name}</strong>
      <p className="muted small">
        <code>{id}</code>
        {sameName !== undefined && <> · {sameName}</>}
      </p>
      {leakedAt !== null && state === 'active' && (
        <p className="key-warning">
          <Badge tone="bad">Probably leaked</Badge> Used from a web page
          {leakOrigin === null ? '' : ` (${leakOrigin})`} <Time at={leakedAt} relative />. Roll it, and keep secret keys
          out of browsers.
        </p>
      )}
      {isUnused && (
        <p className="key-warning">
          <Badge tone="warn">Unused for 30 days</Badge> Revoke it if it is no longer used.
        </p>
      )}
      {origins.length > 0 && <p className="muted">Only from {origins.join(', ')}</p>}
      {limit !== null && (
        <p className="muted">
          At most {formatNumber(limit.users_per_second)} users per second, {formatNumber(limit.burst)} at once
        </p>
      )}
    </div>
  );
}

/** What was received with it, and what was not accepted. */
function KeyVolume({ apiKey: { volume } }: { apiKey: Key }) {
  const { users, events, users_rejected: rejected, requests_limited: limited } = volume;
  if (users + rejected + limited === 0) return <span className="muted">nothing received</span>;
  return (
    <div className="key-volume">
      {formatNumber(users)} {users === 1 ? 'user' : 'users'}, {formatNumber(events)} {events === 1 ? 'event' : 'events'}
      {rejected > 0 && (
        <p>
          <Badge tone="warn">{`${formatNumber(rejected)} rejected`}</Badge>
        </p>
      )}
      {limited > 0 && (
        <p>
          <Badge tone="warn">{`${formatNumber(limited)} over the limit`}</Badge>
        </p>
      )}
    </div>
  );
}

function KeyState({ apiKey: { state, expires_at: expiresAt, revoked_at: revokedAt } }: { apiKey: Key }) {
  if (state === 'revoked' && revokedAt !== null) {
    return (
      <span>
        <Badge tone="quiet">Revoked</Badge> <Time at={revokedAt} relative />
      </span>
    );
  }
  if (expiresAt === null) return <Badge tone="good">Active</Badge>;
  return (
    <span>
      <Badge tone={state === 'expired' ? 'quiet' : 'warn'}>{state === 'expired' ? 'Expired' : 'Expires'}</Badge>{' '}
      <Time at={expiresAt} relative />
    </span>
  );
}
