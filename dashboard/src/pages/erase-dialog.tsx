/**
 * Erasing a person, permanently. What will go is said first, and a text that stands on the page has to be typed, so
 * that it is not done by accident. Afterwards nothing of the person is left to show: the view says that it is done.
 */

import { type FormEvent, type ReactNode, useState } from 'react';
import { send } from '../api.ts';
import { useEnvironment } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { Erased, Health, Profile } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice } from '../ui/notice.tsx';
import { useData } from '../use-data.ts';
import { useSending } from '../use-sending.ts';

interface EraseDialogProps {
  readonly profile: Profile;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly onErased: (erased: Erased) => void;
}

export function EraseDialog(props: EraseDialogProps): ReactNode {
  return (
    <Dialog title="Erase this person" isOpen={props.isOpen} onClose={props.onClose}>
      <EraseForm {...props} />
    </Dialog>
  );
}

function EraseForm({ profile, onClose, onErased }: EraseDialogProps): ReactNode {
  const environment = useEnvironment();
  const [typed, setTyped] = useState('');
  const { run, isBusy, error } = useSending();
  const wanted = textToType(profile);
  const erase = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (typed.trim() !== wanted) return;
    await run(async () => onErased(await send<Erased>(environment, 'DELETE', `/profiles/${profile.id}`)));
  };
  return (
    <form className="form" onSubmit={(event) => void erase(event)}>
      <p>This cannot be undone.</p>
      <ul className="bullets">
        <li>
          The profile goes, with all its identifiers, properties and {formatNumber(profile.event_count)}{' '}
          {profile.event_count === 1 ? 'event' : 'events'}
          {profile.merged_ids.length > 0 && ', and with all profiles that were merged into it'}.
        </li>
        <li>Data received before does not bring the person back. What still waits is processed first.</li>
        <li>Data that is received from now on starts a new profile.</li>
        <LogRemains />
      </ul>
      <TextField
        label={
          <>
            To confirm, type <code>{wanted}</code>
          </>
        }
        value={typed}
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        onChange={(event) => setTyped(event.target.value)}
      />
      {error !== undefined && <ErrorNotice error={error} />}
      <div className="form-end">
        <Button onClick={onClose}>Keep</Button>
        <Button kind="danger" type="submit" busy={isBusy} disabled={typed.trim() !== wanted}>
          Erase permanently
        </Button>
      </div>
    </form>
  );
}

const LOG_RETENTION = 'SLUICE_LOG_RETENTION';

/** The log is not rewritten: who has to forget sooner must keep it for a shorter time. */
function LogRemains(): ReactNode {
  const { data } = useData<Health>('/health');
  const kept = data?.settings.find(({ name }) => name === LOG_RETENTION)?.value;
  return (
    <li>
      The requests as they came stay in the log on the server’s disk until <code>{LOG_RETENTION}</code>
      {kept !== undefined && kept !== null && <> ({kept} on this server)</>} is over. Neither this page nor the API
      shows them. Backups and exports that were made before are not changed either.
    </li>
  );
}

/** Something that a person can type: the strongest short identifier without odd characters, else the id. */
function textToType({ id, identifiers }: Profile): string {
  const { email, user_id: userId, phone_number: phone } = identifiers;
  return [...email, ...userId, ...phone].find((value) => /^[\w.+@-]{1,60}$/.test(value)) ?? id;
}
