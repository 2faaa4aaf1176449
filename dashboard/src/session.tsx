/**
 * Who is signed in. `SessionGate` asks the server once and shows what is inside of it only when there is a session; so
 * `useSession` always has one there. Without a session, `api.ts` leads to the sign-in page. The cookie itself is
 * out of reach of scripts, on purpose; tabs notify each other when another member signs in.
 */

import { createContext, type ReactNode, useContext, useEffect, useState } from 'react';
import { ApiError, get, send } from './api.ts';
import { navigate } from './router.tsx';
import type { Session } from './api-types.ts';
import { ErrorNotice, Loading } from './ui/notice.tsx';

const SessionContext = createContext<Session | null>(null);

/** Of the sign-in that has just happened, so that it need not be asked for again. */
let knownSession: Session | null = null;

/** To the other tabs of this browser, which share the cookie: the id of the member that it is of now. */
const tabs = new BroadcastChannel('sluice.session');

export function rememberSession(session: Session | null): void {
  knownSession = session;
  if (session !== null) tabs.postMessage(session.member.id);
}

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === null) throw new Error('useSession is for inside of SessionGate');
  return session;
}

export async function signOut(): Promise<void> {
  await send(null, 'DELETE', '/session');
  rememberSession(null);
  navigate('/dashboard/sign-in');
}

export function SessionGate({ children }: { children: ReactNode }): ReactNode {
  const [attempt, setAttempt] = useState(0);
  return (
    <Gate key={attempt} onRetry={() => setAttempt(attempt + 1)}>
      {children}
    </Gate>
  );
}

function Gate({ children, onRetry }: { children: ReactNode; onRetry: () => void }): ReactNode {
  const [session, setSession] = useState(knownSession);
  const [error, setError] = useState<ApiError>();

  useEffect(() => {
    if (session !== null) return undefined;
    const asking = new AbortController();
    get<Session>(null, '/session', asking.signal).then(
      (current) => {
        rememberSession(current);
        setSession(current);
      },
      (cause: unknown) => {
        // 401: api.ts is on its way to the sign-in page.
        if (cause instanceof ApiError && cause.status !== 401) setError(cause);
      },
    );
    return () => asking.abort();
  }, [session]);

  // Another member signed in, in another tab: what this one shows and would do is no longer of the account it names.
  useEffect(() => {
    if (session === null) return undefined;
    const startAnew = ({ data }: MessageEvent<unknown>): void => {
      if (data !== session.member.id) location.reload();
    };
    tabs.addEventListener('message', startAnew);
    return () => tabs.removeEventListener('message', startAnew);
  }, [session]);

  if (session !== null) return <SessionContext value={session}>{children}</SessionContext>;
  return (
    <main className="gate">
      {error === undefined ? <Loading what="your account" /> : <ErrorNotice error={error} onRetry={onRetry} />}
    </main>
  );
}
