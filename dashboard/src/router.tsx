/**
 * Where the page is: all of it stands in the address, so that a view can be shared, reloaded and gone back to. A thin
 * layer over the history API. Addresses are `/dashboard/<environment>/<view>`; what a view is narrowed down to is in
 * the query. Going to another path asks the next `Page` to take the focus; a change of the query alone does not.
 */

import { type AnchorHTMLAttributes, type MouseEvent, type ReactNode, useMemo, useSyncExternalStore } from 'react';
import { ENVIRONMENTS, type Environment } from './api-constants.ts';

interface Address {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly hash: string;
}

const BASE = '/dashboard';
const ENVIRONMENT_KEPT_AS = 'sluice.environment';
const DEFAULT_ENVIRONMENT: Environment = 'development';

const listeners = new Set<() => void>();
let shownPath = location.pathname;
let focusWantedAt: string | null = null;

function addressText(): string {
  return location.pathname + location.search + location.hash;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function notifyListeners(): void {
  if (location.pathname !== shownPath) {
    shownPath = location.pathname;
    focusWantedAt = shownPath;
  }
  for (const listener of listeners) listener();
}

addEventListener('popstate', notifyListeners);

export function useAddress(): Address {
  const text = useSyncExternalStore(subscribe, addressText);
  return useMemo(() => {
    const { pathname, searchParams, hash } = new URL(text, location.origin);
    return { path: pathname, query: searchParams, hash };
  }, [text]);
}

export function navigate(to: string, options: { replace?: boolean } = {}): void {
  const target = new URL(to, location.href);
  const isOtherPath = target.pathname !== location.pathname;
  if (options.replace === true || target.href === location.href) history.replaceState(null, '', target);
  else history.pushState(null, '', target);
  if (isOtherPath) scrollTo(0, 0);
  notifyListeners();
}

/** Whether a heading of the view at this path is the first since navigation. True once. */
export function takeFocusWanted(path: string): boolean {
  if (focusWantedAt !== path) return false;
  focusWantedAt = null;
  return true;
}

interface LinkProps extends AnchorHTMLAttributes<HTMLAnchorElement> {
  readonly to: string;
  readonly children: ReactNode;
}

/** A real link, so that it can be opened in another tab; a plain click stays in the page. */
export function Link({ to, children, onClick, ...rest }: LinkProps): ReactNode {
  const follow = (event: MouseEvent<HTMLAnchorElement>): void => {
    onClick?.(event);
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (event.defaultPrevented || !isPlain || rest.target !== undefined) return;
    event.preventDefault();
    navigate(to);
  };
  return (
    <a href={to} onClick={follow} {...rest}>
      {children}
    </a>
  );
}

/** One value of the query; '' is absent. Setting one leaves the others as they are. */
export function useQueryValue(
  name: string,
): [value: string, set: (value: string, options?: { replace?: boolean }) => void] {
  const { query } = useAddress();
  const set = useMemo(
    () =>
      (value: string, options: { replace?: boolean } = {}): void => {
        const changed = new URLSearchParams(location.search);
        if (value === '') changed.delete(name);
        else changed.set(name, value);
        const text = changed.toString();
        navigate(location.pathname + (text === '' ? '' : `?${text}`), options);
      },
    [name],
  );
  return [query.get(name) ?? '', set];
}

export function environmentOf(path: string): Environment | undefined {
  const segment = path.slice(BASE.length + 1).split('/')[0];
  return ENVIRONMENTS.find((environment) => environment === segment);
}

export function useEnvironment(): Environment {
  const { path } = useAddress();
  return environmentOf(path) ?? lastEnvironment();
}

/** `/dashboard/development/live`; the overview is the view ''. */
export function viewPath(environment: Environment, view: string): string {
  const trimmed = view.replace(/^\/+/, '');
  return trimmed === '' ? `${BASE}/${environment}` : `${BASE}/${environment}/${trimmed}`;
}

/** What follows the environment in a path: `people/01a1…`, '' for the overview; undefined outside of an environment. */
export function viewOf(path: string): string | undefined {
  const environment = environmentOf(path);
  if (environment === undefined) return undefined;
  return path.slice(viewPath(environment, '').length).replace(/^\/+|\/+$/g, '');
}

export function lastEnvironment(): Environment {
  try {
    const kept = localStorage.getItem(ENVIRONMENT_KEPT_AS);
    return ENVIRONMENTS.find((environment) => environment === kept) ?? DEFAULT_ENVIRONMENT;
  } catch {
    return DEFAULT_ENVIRONMENT;
  }
}

export function rememberEnvironment(environment: Environment): void {
  try {
    localStorage.setItem(ENVIRONMENT_KEPT_AS, environment);
  } catch {
    // A browser that keeps nothing: the next visit starts at the default.
  }
}

/** Where `?next=` may lead: inside of the dashboard of this server, nowhere else. */
export function safeNext(next: string): string {
  if (!URL.canParse(next, location.origin)) return BASE;
  const { origin, pathname, search } = new URL(next, location.origin);
  const isOurs = origin === location.origin && (pathname === BASE || pathname.startsWith(`${BASE}/`));
  return isOurs && pathname !== `${BASE}/sign-in` ? pathname + search : BASE;
}

export function signInPath(): string {
  const next = location.pathname + location.search;
  return next === BASE || next === `${BASE}/` ? `${BASE}/sign-in` : `${BASE}/sign-in?next=${encodeURIComponent(next)}`;
}
