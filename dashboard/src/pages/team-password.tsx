/** Changing one's own password. The server ends all other sessions of the member; this one gets a new cookie. */

import { type FormEvent, type ReactNode, useState } from 'react';
import { send } from '../api.ts';
import { useSession } from '../session.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { ErrorNotice } from '../ui/notice.tsx';
import { NewPasswordField, PasswordField } from '../ui/password-field.tsx';
import { useSending } from '../use-sending.ts';

export function PasswordCard(): ReactNode {
  const { member } = useSession();
  const [current, setCurrent] = useState('');
  const [next, setNext] = useState('');
  const { run, isBusy, error } = useSending();
  const [isDone, setIsDone] = useState(false);

  const change = (): Promise<void> =>
    run(async () => {
      setIsDone(false);
      await send(null, 'POST', '/session/password', { current_password: current, new_password: next });
      setCurrent('');
      setNext('');
      setIsDone(true);
    });

  const isCurrentWrong = error?.message.startsWith('current_password') === true;

  return (
    <Card title="Your password">
      <form
        className="form"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void change();
        }}
      >
        <p className="muted">You stay signed in here, and are signed out everywhere else.</p>
        {error !== undefined && !isCurrentWrong && <ErrorNotice error={error} />}
        {/* Shows a password manager whose password this is. */}
        <input type="email" name="email" autoComplete="username" value={member.email} readOnly hidden />
        <div className="form-row form-row--top">
          <PasswordField
            label="Current password"
            name="current-password"
            autoComplete="current-password"
            required
            error={isCurrentWrong ? 'This is not your current password.' : undefined}
            value={current}
            onChange={(event) => setCurrent(event.target.value)}
          />
          <NewPasswordField label="New password" value={next} onChange={(event) => setNext(event.target.value)} />
        </div>
        <div className="form-end form-end--start">
          <Button type="submit" busy={isBusy}>
            Change password
          </Button>
          <output className="form-done">{isDone && 'Your password is changed.'}</output>
        </div>
      </form>
    </Card>
  );
}
