/**
 * Signing in with e-mail and password, and on to where the person was going. The server says neither whether an e-mail
 * is known nor which of the two was wrong; nor does this page.
 */

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { navigate, safeNext, useAddress } from '../router.tsx';
import { rememberSession } from '../session.tsx';
import type { Session } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { focusFirst, TextField } from '../ui/field.tsx';
import { Logo } from '../ui/icons.tsx';
import { ErrorNotice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { PasswordField } from '../ui/password-field.tsx';

export default function SignIn(): ReactNode {
  const { query } = useAddress();
  const [email, setEmail] = useState('');
  const [password, setPassword] = useState('');
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const emailInput = useRef<HTMLInputElement>(null);
  const passwordInput = useRef<HTMLInputElement>(null);

  useEffect(() => focusFirst(emailInput.current), []);

  const signIn = async (): Promise<void> => {
    setIsBusy(true);
    setError(undefined);
    try {
      rememberSession(await send<Session>(null, 'POST', '/session', { email, password }));
      navigate(safeNext(query.get('next') ?? ''), { replace: true });
    } catch (cause) {
      if (!(cause instanceof ApiError)) throw cause;
      setError(cause.status === 401 ? new ApiError(cause.message, 401, null) : cause);
      setIsBusy(false);
      passwordInput.current?.select();
    }
  };

  return (
    <main className="gate">
      <p className="gate__brand">
        <Logo /> Sluice
      </p>
      <Page title="Sign in">
        <form
          className="form"
          onSubmit={(event: FormEvent) => {
            event.preventDefault();
            void signIn();
          }}
        >
          {error !== undefined && <ErrorNotice error={error} />}
          <TextField
            label="E-mail"
            type="email"
            name="email"
            autoComplete="username"
            required
            ref={emailInput}
            value={email}
            onChange={(event) => setEmail(event.target.value)}
          />
          <PasswordField
            label="Password"
            name="password"
            autoComplete="current-password"
            required
            ref={passwordInput}
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
          <div className="form-end">
            <Button kind="primary" className="button--wide" type="submit" busy={isBusy}>
              Sign in
            </Button>
          </div>
        </form>
      </Page>
      <p className="gate__foot">
        New here, or lost your password? On the server, run
        <br />
        <code>npx sluice invite --email you@example.com</code>
      </p>
    </main>
  );
}
