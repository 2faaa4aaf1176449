/**
 * What stands around every view of an account: the bar with account, environment, theme and sign-out, and the
 * navigation, which is a menu on a phone. Switching the environment keeps the view, but not the one person or trace
 * that is looked at, since those belong to one environment.
 */

import { type ReactNode, useEffect, useRef, useState } from 'react';
import { Link, useAddress, viewPath } from './router.tsx';
import { signOut, useSession } from './session.tsx';
import { applyTheme, currentTheme, type Theme } from './theme.ts';
import type { Environment } from './api-constants.ts';
import { Button } from './ui/button.tsx';
import { Icon, type IconName, Logo } from './ui/icons.tsx';

interface NavigationLink {
  readonly view: string;
  readonly label: string;
  readonly icon: IconName;
}

const VIEWS: readonly NavigationLink[] = [
  { view: '', label: 'Overview', icon: 'overview' },
  { view: 'live', label: 'Live', icon: 'live' },
  { view: 'people', label: 'People', icon: 'people' },
  { view: 'catalogue', label: 'Catalogue', icon: 'catalogue' },
  { view: 'rejected', label: 'Rejected', icon: 'rejected' },
  { view: 'plan', label: 'Plan', icon: 'plan' },
  { view: 'traces', label: 'Traces', icon: 'traces' },
  { view: 'try', label: 'Try a request', icon: 'try' },
  { view: 'audit', label: 'Audit', icon: 'audit' },
];

const SETTINGS: readonly NavigationLink[] = [
  { view: 'settings/keys', label: 'API keys', icon: 'keys' },
  { view: 'settings/team', label: 'Team', icon: 'team' },
];

const SERVER: readonly NavigationLink[] = [{ view: 'health', label: 'Health', icon: 'health' }];

interface ShellProps {
  readonly environment: Environment;
  readonly view: string;
  readonly children: ReactNode;
}

export function Shell({ environment, view, children }: ShellProps): ReactNode {
  const { account, member } = useSession();
  const { path } = useAddress();
  const [menuPath, setMenuPath] = useState<string | null>(null);
  const main = useRef<HTMLElement>(null);
  // Open at one address only: going anywhere closes it.
  const isMenuOpen = menuPath === path;

  useEffect(() => {
    if (!isMenuOpen) return undefined;
    const closeByKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape') setMenuPath(null);
    };
    addEventListener('keydown', closeByKey);
    return () => removeEventListener('keydown', closeByKey);
  }, [isMenuOpen]);

  return (
    <div className="shell">
      <a
        className="skip-link"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <header className="bar">
        <Link className="bar__home" to={viewPath(environment, '')}>
          <Logo />
          <span className="bar__name">Sluice</span>
          <span className="for-screen-readers">, overview of</span>
          <span className="bar__account">{account.name}</span>
        </Link>
        <div className="bar__end">
          <EnvironmentSwitch environment={environment} view={view} />
          <ThemeSwitch />
          <span className="bar__member">{member.email}</span>
          <SignOutButton />
          <button
            type="button"
            className="icon-button menu-button"
            aria-expanded={isMenuOpen}
            aria-controls="navigation"
            aria-label={isMenuOpen ? 'Close menu' : 'Menu'}
            onClick={() => setMenuPath(isMenuOpen ? null : path)}
          >
            <Icon name={isMenuOpen ? 'close' : 'menu'} />
          </button>
        </div>
      </header>
      <Navigation environment={environment} view={view} isMenuOpen={isMenuOpen} />
      <main className="main" id="main" tabIndex={-1} ref={main} inert={isMenuOpen}>
        {children}
      </main>
    </div>
  );
}

function Navigation({
  environment,
  view,
  isMenuOpen,
}: Omit<ShellProps, 'children'> & { isMenuOpen: boolean }): ReactNode {
  const { account, member, server } = useSession();
  const group = (name: string, links: readonly NavigationLink[], more?: ReactNode): ReactNode => (
    <ul className="rail__group" aria-label={name}>
      {links.map((link) => (
        <li key={link.view}>
          <Link
            className="rail__link"
            to={viewPath(environment, link.view)}
            aria-current={isPartOf(view, link.view) ? 'page' : undefined}
          >
            <Icon name={link.icon} />
            {link.label}
          </Link>
        </li>
      ))}
      {more}
    </ul>
  );
  return (
    <nav className={isMenuOpen ? 'rail rail--open' : 'rail'} id="navigation" aria-label="Main">
      {group('Views', VIEWS)}
      <div>
        <p className="rail__heading" aria-hidden="true">
          Settings
        </p>
        {group('Settings', SETTINGS)}
      </div>
      <div>
        <p className="rail__heading" aria-hidden="true">
          Server
        </p>
        {group('Server', SERVER, <DocsLink />)}
      </div>
      <div className="rail__end">
        <div className="rail__controls">
          <p className="rail__who">
            <b>{account.name}</b>
            <br />
            {member.email}
          </p>
          <ThemeSwitch isWordy />
          <SignOutButton />
        </div>
        <p className="rail__version">Sluice {server.version}</p>
      </div>
    </nav>
  );
}

function DocsLink(): ReactNode {
  return (
    <li>
      <a className="rail__link" href="/docs" target="_blank" rel="noopener">
        <Icon name="docs" />
        API reference <span className="for-screen-readers">(opens in a new tab)</span>
      </a>
    </li>
  );
}

function isPartOf(view: string, link: string): boolean {
  return view === link || (link !== '' && view.startsWith(`${link}/`));
}

/** What narrows a view down to a thing of one environment. */
const OF_ONE_ENVIRONMENT = new Set(['person', 'key', 'open', 'q']);

function searchOf(query: URLSearchParams): string {
  return query.size === 0 ? '' : `?${query.toString()}`;
}

const ENVIRONMENT_LABELS: Readonly<Record<Environment, string>> = {
  production: 'Production',
  development: 'Development',
};

function EnvironmentSwitch({ environment, view }: { environment: Environment; view: string }): ReactNode {
  const { environments } = useSession();
  const { path, query } = useAddress();
  const sharedView = view.replace(/^(people|traces)\/.*$/, '$1');
  const shared = new URLSearchParams([...query].filter(([name]) => !OF_ONE_ENVIRONMENT.has(name)));
  const sharedSearch = sharedView === view ? searchOf(shared) : '';
  return (
    <nav className="environments" aria-label="Environment">
      {environments.map((each) => (
        <Link
          key={each}
          className="environments__one"
          to={each === environment ? path + searchOf(query) : viewPath(each, sharedView) + sharedSearch}
          aria-current={each === environment ? 'true' : undefined}
        >
          <span className={`environments__dot environments__dot--${each}`} aria-hidden="true" />
          {ENVIRONMENT_LABELS[each]}
        </Link>
      ))}
    </nav>
  );
}

const NEXT_THEME: Readonly<Record<Theme, Theme>> = { system: 'light', light: 'dark', dark: 'system' };
const THEME_ICONS: Readonly<Record<Theme, IconName>> = { system: 'screen', light: 'sun', dark: 'moon' };
const THEME_WORDS: Readonly<Record<Theme, string>> = { system: 'system', light: 'light', dark: 'dark' };

function ThemeSwitch({ isWordy = false }: { isWordy?: boolean }): ReactNode {
  const [theme, setTheme] = useState(currentTheme);
  const words = `Theme: ${THEME_WORDS[theme]}`;
  return (
    <button
      type="button"
      className={isWordy ? 'button button--plain' : 'icon-button theme'}
      aria-label={`${words}. Change to ${THEME_WORDS[NEXT_THEME[theme]]}`}
      title={words}
      onClick={() => {
        applyTheme(NEXT_THEME[theme]);
        setTheme(NEXT_THEME[theme]);
      }}
    >
      <Icon name={THEME_ICONS[theme]} />
      {isWordy && words}
    </button>
  );
}

function SignOutButton(): ReactNode {
  const [isBusy, setIsBusy] = useState(false);
  const [hasFailed, setHasFailed] = useState(false);
  const leave = async (): Promise<void> => {
    setIsBusy(true);
    try {
      await signOut();
    } catch {
      // A member who leaves a shared machine must not believe that they are signed out.
      setHasFailed(true);
      setIsBusy(false);
    }
  };
  return (
    <Button kind="quiet" busy={isBusy} onClick={() => void leave()}>
      <Icon name="signOut" />
      {hasFailed ? 'Still signed in. Try again' : 'Sign out'}
    </Button>
  );
}
