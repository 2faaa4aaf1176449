/**
 * Which view an address is. Views are loaded when they are first gone to. Those of an account stand inside of the
 * shell, behind the session; signing in and the welcome page stand outside. An address that is none of them is
 * shows a page that says so, and a view that fails takes only itself down.
 */

import { type ComponentType, createElement, lazy, type ReactNode, Suspense, useEffect } from 'react';
import { ErrorBoundary, ViewNotLoadedError } from './error-boundary.tsx';
import { NotFound } from './not-found.tsx';
import {
  lastEnvironment,
  navigate,
  rememberEnvironment,
  useAddress,
  viewOf,
  environmentOf,
  viewPath,
} from './router.tsx';
import { SessionGate, useSession } from './session.tsx';
import { Shell } from './shell.tsx';
import type { Environment } from './api-constants.ts';
import { Loading } from './ui/notice.tsx';

function notLoaded(cause: unknown): never {
  throw new ViewNotLoadedError(cause instanceof Error ? cause.message : String(cause), { cause });
}

const SignIn = lazy(() => import('./pages/sign-in.tsx').catch(notLoaded));
const Welcome = lazy(() => import('./pages/welcome.tsx').catch(notLoaded));
const Overview = lazy(() => import('./pages/overview.tsx').catch(notLoaded));
const Live = lazy(() => import('./pages/live.tsx').catch(notLoaded));
const People = lazy(() => import('./pages/people.tsx').catch(notLoaded));
const Person = lazy(() => import('./pages/person.tsx').catch(notLoaded));
const Catalogue = lazy(() => import('./pages/catalogue.tsx').catch(notLoaded));
const Rejected = lazy(() => import('./pages/rejected.tsx').catch(notLoaded));
const Plan = lazy(() => import('./pages/plan.tsx').catch(notLoaded));
const Trace = lazy(() => import('./pages/trace.tsx').catch(notLoaded));
const TryRequest = lazy(() => import('./pages/try-request.tsx').catch(notLoaded));
const Audit = lazy(() => import('./pages/audit.tsx').catch(notLoaded));
const Keys = lazy(() => import('./pages/keys.tsx').catch(notLoaded));
const Team = lazy(() => import('./pages/team.tsx').catch(notLoaded));
const Health = lazy(() => import('./pages/health.tsx').catch(notLoaded));

const VIEWS: ReadonlyMap<string, ComponentType> = new Map<string, ComponentType>([
  ['', Overview],
  ['live', Live],
  ['people', People],
  ['catalogue', Catalogue],
  ['rejected', Rejected],
  ['plan', Plan],
  ['traces', Trace],
  ['try', TryRequest],
  ['audit', Audit],
  ['settings/keys', Keys],
  ['settings/team', Team],
  ['health', Health],
]);

function componentOf(view: string): ComponentType {
  if (/^people\/[^/]+$/.test(view)) return Person;
  if (/^traces\/[^/]+$/.test(view)) return Trace;
  return VIEWS.get(view) ?? NotFound;
}

export function App(): ReactNode {
  const path = useAddress().path.replace(/\/+$/, '');
  const environment = environmentOf(path);
  if (path === '/dashboard/sign-in') return <Outside page={SignIn} name="sign-in" />;
  if (path === '/dashboard/welcome') return <Outside page={Welcome} name="welcome" />;
  if (path !== '/dashboard' && environment === undefined) return <Outside page={NotFound} name="nothing" />;
  return (
    <ErrorBoundary key="inside" isWhole>
      <SessionGate>
        <Inside environment={environment} view={viewOf(path) ?? ''} />
      </SessionGate>
    </ErrorBoundary>
  );
}

function Outside({ page: Component, name }: { page: ComponentType; name: string }): ReactNode {
  return (
    <ErrorBoundary key={name} isWhole>
      <Suspense fallback={null}>
        <Component />
      </Suspense>
    </ErrorBoundary>
  );
}

/** An address without an environment, or with one that this server does not serve, leads to one that it does. */
function Inside({ environment, view }: { environment: Environment | undefined; view: string }): ReactNode {
  const { environments } = useSession();
  const isServed = environment !== undefined && environments.includes(environment);

  useEffect(() => {
    if (isServed) {
      rememberEnvironment(environment);
      return;
    }
    const last = lastEnvironment();
    const other = environments.includes(last) ? last : environments[0];
    if (other !== undefined) navigate(viewPath(other, view) + location.search, { replace: true });
  }, [environment, environments, isServed, view]);

  if (!isServed) return null;
  const place = `${environment} ${view}`;
  return (
    <Shell environment={environment} view={view}>
      <ErrorBoundary key={place}>
        <Suspense fallback={<Loading what="this view" />}>{createElement(componentOf(view), { key: place })}</Suspense>
      </ErrorBoundary>
    </Shell>
  );
}
