/**
 * The dialogs around a key: making one, rolling one, revoking one. The first two end with the new key in full, once,
 * with what to paste to use it.
 */

import { type FormEvent, type ReactNode, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { useEnvironment } from '../router.tsx';
import { useSession } from '../session.tsx';
import { browserSnippet, curlLine } from '../snippets.ts';
import type { ApiKey, Environment, KeyKind } from '../types.ts';
import { Button } from '../ui/button.tsx';
import { Code } from '../ui/code.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { SelectField, TextField } from '../ui/field.tsx';
import { Notice } from '../ui/notice.tsx';

const DAY_MS = 86_400_000;
const NAME_CHARACTERS_MAX = 100;

const KINDS = [
  { value: 'secret', label: 'Secret: servers, sends and reads' },
  { value: 'publishable', label: 'Publishable: browsers and apps, sends only' },
];
const LIFETIMES = [
  { value: '', label: 'Never' },
  { value: '30', label: 'In 30 days' },
  { value: '90', label: 'In 90 days' },
  { value: '365', label: 'In a year' },
];
const OVERLAPS = [
  { value: '0', label: 'At once' },
  { value: '3600', label: 'After an hour' },
  { value: '86400', label: 'After a day' },
  { value: '604800', label: 'After a week' },
];

interface NewKey {
  readonly key: string;
  readonly row: ApiKey;
}

/** Runs what a form asks for; words for what went wrong. */
function useAsking(): [error: string, isBusy: boolean, ask: (work: () => Promise<void>) => (event: FormEvent) => void] {
  const [error, setError] = useState('');
  const [isBusy, setBusy] = useState(false);
  const ask = (work: () => Promise<void>) => (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    work()
      .catch((cause: unknown) => setError(cause instanceof ApiError ? cause.message : String(cause)))
      .finally(() => setBusy(false));
  };
  return [error, isBusy, ask];
}

export function CreateKeyDialog({ onClose, onCreated }: { onClose: () => void; onCreated: () => void }) {
  const { environments } = useSession();
  const current = useEnvironment();
  const [name, setName] = useState('');
  const [kind, setKind] = useState<KeyKind>('secret');
  const [environment, setEnvironment] = useState<Environment>(current);
  const [days, setDays] = useState('');
  const [origins, setOrigins] = useState('');
  const [made, setMade] = useState<NewKey>();
  const [error, isBusy, ask] = useAsking();
  if (made !== undefined) return <NewKeyDialog made={made} title="Your new key" onClose={onClose} />;
  const create = ask(async () => {
    const body = {
      name,
      kind,
      environment,
      expires_at: days === '' ? null : new Date(Date.now() + Number(days) * DAY_MS).toISOString(),
      origins: kind === 'publishable' ? origins.split(/[\s,]+/).filter((origin) => origin !== '') : [],
    };
    setMade(await send<NewKey>(current, 'POST', '/keys', body));
    onCreated();
  });
  return (
    <Dialog title="Create an API key" isOpen onClose={onClose}>
      <form className="form" onSubmit={create}>
        <TextField
          label="Name"
          hint="What will use it, such as “checkout server”."
          value={name}
          onChange={(event) => setName(event.target.value)}
          maxLength={NAME_CHARACTERS_MAX}
          required
          autoFocus
        />
        <SelectField
          label="Kind"
          options={KINDS}
          value={kind}
          onChange={(event) => setKind(event.target.value as KeyKind)}
        />
        <SelectField
          label="Environment"
          options={environments.map((value) => ({ value, label: value }))}
          value={environment}
          onChange={(event) => setEnvironment(event.target.value as Environment)}
        />
        <SelectField label="Expires" options={LIFETIMES} value={days} onChange={(event) => setDays(event.target.value)} />
        {kind === 'publishable' && (
          <TextField
            label="Allowed origins"
            hint="Such as https://shop.example.com, separated by spaces. Empty: any web page."
            value={origins}
            onChange={(event) => setOrigins(event.target.value)}
          />
        )}
        <FormEnd error={error} onClose={onClose}>
          <Button kind="primary" type="submit" busy={isBusy}>
            Create key
          </Button>
        </FormEnd>
      </form>
    </Dialog>
  );
}

interface RollProps {
  readonly apiKey: ApiKey;
  readonly onClose: () => void;
  readonly onRolled: () => void;
}

export function RollKeyDialog({ apiKey, onClose, onRolled }: RollProps) {
  const environment = useEnvironment();
  const [overlap, setOverlap] = useState('86400');
  const [made, setMade] = useState<NewKey>();
  const [error, isBusy, ask] = useAsking();
  if (made !== undefined) return <NewKeyDialog made={made} title={`The new key of ${apiKey.name}`} onClose={onClose} />;
  const roll = ask(async () => {
    const body = { overlap_seconds: Number(overlap) };
    setMade(await send<NewKey>(environment, 'POST', `/keys/${apiKey.id}/roll`, body));
    onRolled();
  });
  return (
    <Dialog title={`Roll ${apiKey.name}`} isOpen onClose={onClose}>
      <form className="form" onSubmit={roll}>
        <p>
          A new key with the same name, kind, environment and origins takes the place of{' '}
          <code>
            {apiKey.prefix}…{apiKey.last_four}
          </code>
          . Both work until the old one expires, so that nothing is refused while you exchange it.
        </p>
        <SelectField
          label="The old key expires"
          options={OVERLAPS}
          value={overlap}
          onChange={(event) => setOverlap(event.target.value)}
        />
        <FormEnd error={error} onClose={onClose}>
          <Button kind="primary" type="submit" busy={isBusy}>
            Roll key
          </Button>
        </FormEnd>
      </form>
    </Dialog>
  );
}

export function RevokeKeyDialog({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const environment = useEnvironment();
  const [typed, setTyped] = useState('');
  const [error, isBusy, ask] = useAsking();
  const revoke = ask(async () => {
    await send<ApiKey>(environment, 'POST', `/keys/${apiKey.id}/revoke`, { name: typed.trim() });
    onClose();
  });
  return (
    <Dialog title={`Revoke ${apiKey.name}`} isOpen onClose={onClose}>
      <form className="form" onSubmit={revoke}>
        <p>
          Whatever uses{' '}
          <code>
            {apiKey.prefix}…{apiKey.last_four}
          </code>{' '}
          is refused with 401 within two seconds, and clients drop what they are refused. This cannot be undone. To exchange a
          key without a gap, roll it instead.
        </p>
        <TextField
          label={`Type the key's name to confirm: ${apiKey.name}`}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          autoComplete="off"
          autoFocus
        />
        <FormEnd error={error} onClose={onClose}>
          <Button kind="danger" type="submit" busy={isBusy} disabled={typed.trim() !== apiKey.name}>
            Revoke key
          </Button>
        </FormEnd>
      </form>
    </Dialog>
  );
}

function FormEnd({ error, onClose, children }: { error: string; onClose: () => void; children: ReactNode }) {
  return (
    <>
      {error !== '' && <Notice tone="bad">{error}</Notice>}
      <div className="form-end">
        <Button type="button" onClick={onClose}>
          Cancel
        </Button>
        {children}
      </div>
    </>
  );
}

function NewKeyDialog({ made, title, onClose }: { made: NewKey; title: string; onClose: () => void }) {
  const { server } = useSession();
  const { key, row } = made;
  const isSecret = row.kind === 'secret';
  return (
    <Dialog title={title} isOpen onClose={onClose}>
      <div className="form">
        <Notice tone="warn" title="This is the only time it is shown">
          Keep it in a password manager or your deployment's secrets. Nobody can show it again, this server included.
        </Notice>
        <Code text={key} />
        <p>{isSecret ? 'Send a first event from a terminal:' : 'Send a first event from a web page:'}</p>
        {isSecret ? (
          <Code text={curlLine(server.url, key)} language="shell" />
        ) : (
          <Code text={browserSnippet(server.url, key)} />
        )}
        <div className="form-end">
          <Button kind="primary" onClick={onClose}>
            I have saved it
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
