/**
 * Where a one-time link leads: the first start of a server, an invitation, or a new password. The link is looked up
 * first, so that a person learns that it is used or expired before they think of a password. Afterwards they are
 * signed in.
 */

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { Link, navigate } from '../router.tsx';
import { rememberSession } from '../session.tsx';
import type { InvitationLook, Session } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { focusFirst, TextField } from '../ui/field.tsx';
import { Logo } from '../ui/icons.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { NewPasswordField } from '../ui/password-field.tsx';
import { forgetWelcomeToken, takeWelcomeToken } from '../welcome-token.ts';
import { useSending } from '../use-sending.ts';

type Found =
  | { readonly state: 'looking' }
  | { readonly state: 'open'; readonly invitation: InvitationLook }
  | { readonly state: 'gone' }
  | { readonly state: 'failed'; readonly error: ApiError };

export default function Welcome(): ReactNode {
  const [token, setToken] = useState(takeWelcomeToken);
  const [attempt, setAttempt] = useState(0);

  // Another link, opened in the tab that shows this page, changes the fragment only.
  useEffect(() => {
    const takeAgain = (): void => setToken(takeWelcomeToken());
    addEventListener('hashchange', takeAgain);
    return () => removeEventListener('hashchange', takeAgain);
  }, []);

  return (
    <main className="gate">
      <p className="gate__brand">
        <Logo /> Sluice
      </p>
      <LookedUp key={`${token} ${attempt}`} token={token} onRetry={() => setAttempt(attempt + 1)} />
    </main>
  );
}

function LookedUp({ token, onRetry }: { token: string; onRetry: () => void }): ReactNode {
  const [found, setFound] = useState<Found>({ state: 'looking' });

  useEffect(() => {
    let isCurrent = true;
    void lookUp(token).then((result) => {
      if (isCurrent) setFound(result);
    });
    return () => {
      isCurrent = false;
    };
  }, [token]);

  if (found.state === 'looking') return <Loading what="your invitation" />;
  if (found.state === 'failed') return <ErrorNotice error={found.error} onRetry={onRetry} />;
  if (found.state === 'gone') return <Gone hadToken={token !== ''} />;
  return <Accept token={token} invitation={found.invitation} />;
}

async function lookUp(token: string): Promise<Found> {
  if (token === '') return { state: 'gone' };
  try {
    return { state: 'open', invitation: await send<InvitationLook>(null, 'POST', '/invitations/look', { token }) };
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause;
    return cause.status === 404 || cause.status === 400 ? { state: 'gone' } : { state: 'failed', error: cause };
  }
}

function Gone({ hadToken }: { hadToken: boolean }): ReactNode {
  return (
    <Page title={hadToken ? 'This link does not work any more' : 'Open your link again'}>
      {hadToken ? (
        <p>It was used already, or it has expired. Each link works once.</p>
      ) : (
        <p>
          The link that leads here ends in a long code, which this page did not get. It is not kept when the page is
          loaded again.
        </p>
      )}
      <Notice tone="quiet" title="To get a new link">
        <p>
          Ask a member of your team to invite you, or run this where the server runs:
          <br />
          <code>npx sluice invite</code>
        </p>
        <p>
          If you have forgotten your password, run it with your e-mail:
          <br />
          <code>npx sluice invite</code> <code className="gate__option">--email you@example.com</code>
        </p>
      </Notice>
      <p>
        <Link to="/dashboard/sign-in">Sign in with a password</Link>
      </p>
    </Page>
  );
}

const TITLES: Readonly<Record<InvitationLook['kind'], (accountName: string) => string>> = {
  first: () => 'Welcome to Sluice',
  invitation: (accountName) => `Join ${accountName}`,
  reset: () => 'Choose a new password',
};

const LEADS: Readonly<Record<InvitationLook['kind'], (accountName: string) => string>> = {
  first: (accountName) =>
    `Your server is running. Choose how you will sign in to the account “${accountName}” from now on: this link works once.`,
  invitation: () => 'Choose a password, and you are in.',
  reset: (accountName) => `For the account “${accountName}”. You will be signed out wherever else you were signed in.`,
};

function Accept({ token, invitation }: { token: string; invitation: InvitationLook }): ReactNode {
  const [email, setEmail] = useState(invitation.email ?? '');
  const [password, setPassword] = useState('');
  const { run, isBusy, error } = useSending();
  const isEmailGiven = invitation.email !== null;
  const emailInput = useRef<HTMLInputElement>(null);
  const passwordInput = useRef<HTMLInputElement>(null);

  useEffect(() => focusFirst(isEmailGiven ? passwordInput.current : emailInput.current), [isEmailGiven]);

  const accept = (): Promise<void> =>
    run(async () => {
      rememberSession(await send<Session>(null, 'POST', '/invitations/accept', { token, email, password }));
      forgetWelcomeToken();
      navigate('/dashboard', { replace: true });
    });

  return (
    <Page title={TITLES[invitation.kind](invitation.account_name)}>
      <p className="muted">{LEADS[invitation.kind](invitation.account_name)}</p>
      <form
        className="form"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void accept();
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
          readOnly={isEmailGiven}
          hint={isEmailGiven ? undefined : 'Only for signing in. Nothing is sent to it.'}
          value={email}
          onChange={(event) => setEmail(event.target.value)}
        />
        <NewPasswordField
          label="Password"
          ref={passwordInput}
          value={password}
          onChange={(event) => setPassword(event.target.value)}
        />
        <div className="form-end">
          <Button kind="primary" className="button--wide" type="submit" busy={isBusy}>
            {invitation.kind === 'reset' ? 'Save and sign in' : 'Go to the dashboard'}
          </Button>
        </div>
      </form>
    </Page>
  );
}
