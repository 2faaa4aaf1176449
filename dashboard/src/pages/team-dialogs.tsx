/**
 * The dialogs of the team page: inviting a person, with the link shown once, and removing a member or an invitation,
 * after a question that says what it means.
 */

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { send } from '../api.ts';
import { Time } from '../time.tsx';
import { isOnThisMachineOnly } from '../snippets.ts';
import type { CreatedInvitation } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Code } from '../ui/code.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice } from '../ui/notice.tsx';
import { useSending } from '../use-sending.ts';

interface InviteDialogProps {
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly onInvited: () => void;
}

export function InviteDialog({ isOpen, onClose, onInvited }: InviteDialogProps): ReactNode {
  return (
    <Dialog title="Invite a person" isOpen={isOpen} onClose={onClose}>
      <InviteForm onClose={onClose} onInvited={onInvited} />
    </Dialog>
  );
}

function InviteForm({ onClose, onInvited }: Omit<InviteDialogProps, 'isOpen'>): ReactNode {
  const [email, setEmail] = useState('');
  const [made, setMade] = useState<CreatedInvitation>();
  const { run, isBusy, error } = useSending();

  if (made !== undefined) return <InvitationLink made={made} onClose={onClose} />;
  const invite = (): Promise<void> =>
    run(async () => {
      setMade(await send<CreatedInvitation>(null, 'POST', '/invitations', { email }));
      onInvited();
    });
  return (
    <form
      className="form"
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        void invite();
      }}
    >
      {error !== undefined && <ErrorNotice error={error} />}
      <TextField
        label="Their e-mail"
        type="email"
        name="email"
        autoComplete="off"
        required
        hint="You get a link to pass on. Sluice sends no e-mail."
        value={email}
        onChange={(event) => setEmail(event.target.value)}
      />
      <div className="form-end">
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" type="submit" busy={isBusy}>
          Make the link
        </Button>
      </div>
    </form>
  );
}

function InvitationLink({ made, onClose }: { made: CreatedInvitation; onClose: () => void }): ReactNode {
  const words = useRef<HTMLParagraphElement>(null);
  // The button that had the focus is gone.
  useEffect(() => words.current?.focus(), []);
  return (
    <>
      <p ref={words} tabIndex={-1}>
        Send this link to <b>{made.email}</b>. It is shown only once, works once, and until{' '}
        <Time at={made.expires_at} />. Anyone who has it can join.
      </p>
      <Code text={made.link} label="Copy link" />
      {isOnThisMachineOnly(made.link) && (
        <p className="muted">
          It works on this machine only. For others, start the server with <code>SLUICE_PUBLIC_URL</code> set to where
          they reach it.
        </p>
      )}
      <div className="form-end">
        <Button kind="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </>
  );
}

export type Removal =
  | { readonly kind: 'member'; readonly id: string; readonly email: string }
  | { readonly kind: 'invitation'; readonly id: string; readonly email: string | null };

interface RemoveDialogProps {
  readonly removal: Removal | null;
  readonly onClose: () => void;
  readonly onRemoved: () => void;
}

export function RemoveDialog({ removal, onClose, onRemoved }: RemoveDialogProps): ReactNode {
  const title = removal?.kind === 'member' ? 'Remove this member?' : 'Withdraw this invitation?';
  return (
    <Dialog title={title} isOpen={removal !== null} onClose={onClose}>
      {removal !== null && <RemoveForm removal={removal} onClose={onClose} onRemoved={onRemoved} />}
    </Dialog>
  );
}

function RemoveForm({ removal, onClose, onRemoved }: RemoveDialogProps & { removal: Removal }): ReactNode {
  const { run, isBusy, error } = useSending();
  const path = removal.kind === 'member' ? '/members' : '/invitations';
  const remove = (): Promise<void> =>
    run(async () => {
      await send(null, 'DELETE', `${path}/${encodeURIComponent(removal.id)}`);
      onRemoved();
      onClose();
    });
  return (
    <>
      {error !== undefined && <ErrorNotice error={error} />}
      {removal.kind === 'member' ? (
        <p>
          <b>{removal.email}</b> is signed out everywhere at once and cannot sign in any more. Keys that they created go
          on working: revoke those that they know.
        </p>
      ) : (
        <p>
          The link for <b>{removal.email ?? 'anyone who has it'}</b> stops working at once.
        </p>
      )}
      <div className="form-end">
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="danger" busy={isBusy} onClick={() => void remove()}>
          {removal.kind === 'member' ? 'Remove' : 'Withdraw'}
        </Button>
      </div>
    </>
  );
}
