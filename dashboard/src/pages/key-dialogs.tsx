/**
 * The dialogs around a key: making one, editing one, rolling one, revoking one. Making and rolling end with the new key in full, once,
 * with what to paste to use it.
 */

import { type FormEvent, type ReactNode, useState } from 'react';
import { send } from '../api.ts';
import { useEnvironment } from '../router.tsx';
import { useSession } from '../session.tsx';
import type { Environment } from '../api-constants.ts';
import type { CreatedKey, Key } from '../api-types.ts';
import { DAY_MS } from '../time-units.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { SelectField, TextField } from '../ui/field.tsx';
import { Notice } from '../ui/notice.tsx';
import { useSending } from '../use-sending.ts';
import { NewKeyNotice } from './new-key.tsx';

const NAME_CHARACTERS_MAX = 100;

const KINDS = [
  { value: 'secret', label: 'Secret: sends and reads' },
  { value: 'publishable', label: 'Publishable: sends only' },
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

const UNSAVED_KEY = {
  title: 'Have you saved the key? It is shown only once, and is gone when this closes.',
  close: 'Close without saving',
};

/** Keys may share a name: after a roll, two do. */
function titleName(apiKey: Key | undefined): string {
  return apiKey === undefined ? '' : `${apiKey.name} (…${apiKey.last_four})`;
}

function timeInDays(days: number): string {
  return new Date(Date.now() + days * DAY_MS).toISOString();
}

/** Runs what a form asks for; words for what went wrong. */
function useForm(): [
  error: string,
  isBusy: boolean,
  submit: (work: () => Promise<void>) => (event: FormEvent) => void,
] {
  const { run, isBusy, error } = useSending();
  const submit = (work: () => Promise<void>) => (event: FormEvent) => {
    event.preventDefault();
    void run(work);
  };
  return [error?.message ?? '', isBusy, submit];
}

/** A new key, which is shown once, until the dialog is closed. */
function useMadeKey(onMade: () => void, onClose: () => void) {
  const [made, setMade] = useState<CreatedKey>();
  const show = (key: CreatedKey): void => {
    setMade(key);
    onMade();
  };
  const close = (): void => {
    setMade(undefined);
    onClose();
  };
  return { made, show, close };
}

interface CreateProps {
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly onCreated: () => void;
}

export function CreateKeyDialog({ isOpen, onClose, onCreated }: CreateProps): ReactNode {
  const { made, show, close } = useMadeKey(onCreated, onClose);
  return (
    <Dialog
      title={made === undefined ? 'Create an API key' : 'Your new key'}
      isOpen={isOpen}
      onClose={close}
      closeQuestion={made === undefined ? undefined : UNSAVED_KEY}
    >
      {made === undefined ? <CreateForm onClose={close} onMade={show} /> : <NewKeyNotice made={made} onClose={close} />}
    </Dialog>
  );
}

interface FormProps {
  readonly onClose: () => void;
  readonly onMade: (made: CreatedKey) => void;
}

function CreateForm({ onClose, onMade }: FormProps): ReactNode {
  const { environments } = useSession();
  const current = useEnvironment();
  const [name, setName] = useState('');
  const [kind, setKind] = useState<Key['kind']>('secret');
  const [environment, setEnvironment] = useState<Environment>(current);
  const [days, setDays] = useState('');
  const [origins, setOrigins] = useState('');
  const [limit, setLimit] = useState<LimitTexts>({ rate: '', burst: '' });
  const [error, isBusy, submit] = useForm();
  const create = submit(async () => {
    const body = {
      name,
      kind,
      environment,
      expires_at: days === '' ? null : timeInDays(Number(days)),
      origins: kind === 'publishable' ? originsIn(origins) : [],
      rate_limit: limitIn(limit),
    };
    onMade(await send<CreatedKey>(current, 'POST', '/keys', body));
  });
  return (
    <form className="form" onSubmit={create}>
      <TextField
        label="Name"
        hint="What will use it, such as “checkout server”."
        value={name}
        onChange={(event) => setName(event.target.value)}
        maxLength={NAME_CHARACTERS_MAX}
        autoComplete="off"
        required
      />
      <SelectField
        label="Kind"
        hint="Secret keys are for servers. Publishable keys are safe in web pages and apps."
        options={KINDS}
        value={kind}
        onChange={(event) => setKind(event.target.value as Key['kind'])}
      />
      <SelectField
        label="Environment"
        options={environments.map((value) => ({ value, label: value }))}
        value={environment}
        onChange={(event) => setEnvironment(event.target.value as Environment)}
      />
      <SelectField label="Expires" options={LIFETIMES} value={days} onChange={(event) => setDays(event.target.value)} />
      {kind === 'publishable' && <OriginsField origins={origins} onChange={setOrigins} />}
      <LimitFields limit={limit} onChange={setLimit} />
      <FormEnd error={error} onClose={onClose}>
        <Button kind="primary" type="submit" busy={isBusy}>
          Create key
        </Button>
      </FormEnd>
    </form>
  );
}

function originsIn(text: string): string[] {
  return text.split(/[\s,]+/).filter((origin) => origin !== '');
}

function OriginsField({ origins, onChange }: { origins: string; onChange: (origins: string) => void }): ReactNode {
  return (
    <TextField
      label="Allowed origins"
      hint="Such as https://shop.example.com, separated by spaces. Empty: any web page."
      value={origins}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

/** A rate limit as it is typed. */
interface LimitTexts {
  readonly rate: string;
  readonly burst: string;
}

/** Without a burst it is one second of the rate. */
function limitIn({ rate, burst }: LimitTexts): Key['rate_limit'] {
  if (rate.trim() === '') return null;
  return { users_per_second: Number(rate), burst: Number(burst.trim() === '' ? rate : burst) };
}

function LimitFields({ limit, onChange }: { limit: LimitTexts; onChange: (limit: LimitTexts) => void }): ReactNode {
  return (
    <>
      <TextField
        label="Users per second"
        hint="Beyond this, requests get 503 or 429, and clients retry them. Empty: no limit."
        inputMode="numeric"
        pattern="[0-9]*"
        value={limit.rate}
        onChange={(event) => onChange({ ...limit, rate: event.target.value })}
      />
      {limit.rate.trim() !== '' && (
        <TextField
          label="Burst"
          hint="How many users may arrive at once after a pause. Empty: one second of the rate."
          inputMode="numeric"
          pattern="[0-9]*"
          value={limit.burst}
          onChange={(event) => onChange({ ...limit, burst: event.target.value })}
        />
      )}
    </>
  );
}

interface EditProps {
  /** Undefined while the dialog is closed. */
  readonly apiKey: Key | undefined;
  readonly onClose: () => void;
}

export function EditKeyDialog({ apiKey, onClose }: EditProps): ReactNode {
  return (
    <Dialog title={`Edit ${titleName(apiKey)}`} isOpen={apiKey !== undefined} onClose={onClose}>
      {apiKey !== undefined && <EditForm apiKey={apiKey} onClose={onClose} />}
    </Dialog>
  );
}

function EditForm({ apiKey, onClose }: { apiKey: Key; onClose: () => void }): ReactNode {
  const environment = useEnvironment();
  const originsBefore = apiKey.origins.join(' ');
  const limitBefore = {
    rate: String(apiKey.rate_limit?.users_per_second ?? ''),
    burst: String(apiKey.rate_limit?.burst ?? ''),
  };
  const [name, setName] = useState(apiKey.name);
  const [origins, setOrigins] = useState(originsBefore);
  const [limit, setLimit] = useState<LimitTexts>(limitBefore);
  const [error, isBusy, submit] = useForm();
  const save = submit(async () => {
    // Only what was changed here: another member may have changed the rest since the dialog was opened.
    const body = {
      ...(name !== apiKey.name && { name }),
      ...(origins !== originsBefore && { origins: originsIn(origins) }),
      ...((limit.rate !== limitBefore.rate || limit.burst !== limitBefore.burst) && { rate_limit: limitIn(limit) }),
    };
    await send<Key>(environment, 'PATCH', `/keys/${apiKey.id}`, body);
    onClose();
  });
  return (
    <form className="form" onSubmit={save}>
      <TextField
        label="Name"
        value={name}
        onChange={(event) => setName(event.target.value)}
        maxLength={NAME_CHARACTERS_MAX}
        autoComplete="off"
        required
      />
      {apiKey.kind === 'publishable' && <OriginsField origins={origins} onChange={setOrigins} />}
      <LimitFields limit={limit} onChange={setLimit} />
      <FormEnd error={error} onClose={onClose}>
        <Button kind="primary" type="submit" busy={isBusy}>
          Save
        </Button>
      </FormEnd>
    </form>
  );
}

interface RollProps {
  /** Undefined while the dialog is closed. */
  readonly apiKey: Key | undefined;
  readonly onClose: () => void;
  readonly onRolled: () => void;
}

export function RollKeyDialog({ apiKey, onClose, onRolled }: RollProps): ReactNode {
  const { made, show, close } = useMadeKey(onRolled, onClose);
  const name = titleName(apiKey);
  return (
    <Dialog
      title={made === undefined ? `Roll ${name}` : `The new key of ${name}`}
      isOpen={apiKey !== undefined}
      onClose={close}
      closeQuestion={made === undefined ? undefined : UNSAVED_KEY}
    >
      {apiKey !== undefined && made === undefined && <RollForm apiKey={apiKey} onClose={close} onMade={show} />}
      {made !== undefined && <NewKeyNotice made={made} onClose={close} />}
    </Dialog>
  );
}

function RollForm({ apiKey, onClose, onMade }: FormProps & { apiKey: Key }): ReactNode {
  const environment = useEnvironment();
  const [overlap, setOverlap] = useState('86400');
  const [error, isBusy, submit] = useForm();
  const roll = submit(async () => {
    const body = { overlap_seconds: Number(overlap) };
    onMade(await send<CreatedKey>(environment, 'POST', `/keys/${apiKey.id}/roll`, body));
  });
  return (
    <form className="form" onSubmit={roll}>
      <p>
        A new key with the same name, kind, environment, origins and rate limit takes the place of{' '}
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
  );
}

interface RevokeProps {
  /** Undefined while the dialog is closed. */
  readonly apiKey: Key | undefined;
  readonly onClose: () => void;
}

export function RevokeKeyDialog({ apiKey, onClose }: RevokeProps): ReactNode {
  return (
    <Dialog title={`Revoke ${titleName(apiKey)}`} isOpen={apiKey !== undefined} onClose={onClose}>
      {apiKey !== undefined && <RevokeForm apiKey={apiKey} onClose={onClose} />}
    </Dialog>
  );
}

function RevokeForm({ apiKey, onClose }: { apiKey: Key; onClose: () => void }): ReactNode {
  const environment = useEnvironment();
  const [typed, setTyped] = useState('');
  const [error, isBusy, submit] = useForm();
  const revoke = submit(async () => {
    await send<Key>(environment, 'POST', `/keys/${apiKey.id}/revoke`, { name: apiKey.name });
    onClose();
  });
  return (
    <form className="form" onSubmit={revoke}>
      <p>
        Whatever uses{' '}
        <code>
          {apiKey.prefix}…{apiKey.last_four}
        </code>{' '}
        is refused with 401 within two seconds, and clients drop what they are refused. This cannot be undone. To
        exchange a key without a gap, roll it instead.
      </p>
      <TextField
        label={
          <>
            To confirm, type the key’s name: <code>{apiKey.name}</code>
          </>
        }
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
      />
      <FormEnd error={error} onClose={onClose}>
        <Button kind="danger" type="submit" busy={isBusy} disabled={typed.trim() !== apiKey.name.trim()}>
          Revoke key
        </Button>
      </FormEnd>
    </form>
  );
}

function FormEnd({ error, onClose, children }: { error: string; onClose: () => void; children: ReactNode }): ReactNode {
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
