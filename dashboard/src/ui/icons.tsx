/**
 * Small line icons, drawn here so that no font and no file is loaded. They are decoration: hidden from screen readers,
 * and never the only thing that says what something is for.
 */

import type { ReactNode } from 'react';

const PATHS = {
  overview: 'M2.5 13.5h11M4.5 11V7.5M8 11V3.5M11.5 11V5.5',
  live: 'M1.5 8h3l2-5 3 10 2-5h3',
  people: 'M8 8a2.75 2.75 0 1 0 0-5.5A2.75 2.75 0 0 0 8 8ZM2.75 13.75c.5-2.5 2.5-4 5.25-4s4.75 1.5 5.25 4',
  catalogue: 'M3.5 2.5h9v11h-9zM6 2.5v11M8.25 5.5h2M8.25 8h2',
  rejected: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM3.75 3.75l8.5 8.5',
  plan: 'M3.5 2.5h9v11h-9zM6 6h4M6 8.5h4M6 11h2',
  traces: 'M2.5 4h5M2.5 8h8M2.5 12h4M11 12.5a1.5 1.5 0 1 0 0-3M9.5 4h4',
  try: 'M3 2.5h10v11h-10zM5.5 6l1.75 1.75L5.5 9.5M8.75 10h2',
  audit: 'M8 1.75 13 3.5v4c0 3.25-2 5.5-5 6.75-3-1.25-5-3.5-5-6.75v-4ZM5.75 8 7.5 9.75 10.5 6.25',
  keys: 'M5.25 13a2.75 2.75 0 1 0 0-5.5 2.75 2.75 0 0 0 0 5.5ZM7.25 8.25 13 2.5M10.5 5l2 2',
  team: 'M6 7.5a2.25 2.25 0 1 0 0-4.5 2.25 2.25 0 0 0 0 4.5ZM1.75 13c.35-2.1 2-3.25 4.25-3.25S9.9 10.9 10.25 13M10.5 3.25a2.25 2.25 0 0 1 0 4M11.75 10c1.4.4 2.25 1.4 2.5 3',
  health: 'M8 13.5S2.25 10.25 2.25 6.25A3 3 0 0 1 8 5a3 3 0 0 1 5.75 1.25c0 4-5.75 7.25-5.75 7.25Z',
  docs: 'M3.5 2.5h6l3 3v8h-9zM9.5 2.5v3h3M6 8.5h4M6 11h4',
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z',
  check: 'M2.5 8.5l3.5 3.5 7.5-8',
  next: 'M6 3.5 10.5 8 6 12.5',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13.5 9.75A6 6 0 0 1 6.25 2.5a5.75 5.75 0 1 0 7.25 7.25Z',
  screen: 'M2 3h12v8H2zM6 13.5h4',
  signOut: 'M6.5 2.5h-4v11h4M6.5 8h7M11 5.5 13.5 8 11 10.5',
  warning: 'M8 2 1.75 13.25h12.5ZM8 6.5v3M8 11.5v.01',
  information: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 7.25V11M8 5v.01',
  success: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM5.25 8.25 7.25 10.25 10.75 6',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): ReactNode {
  return <LineIcon path={PATHS[name]} />;
}

/** Inside of a picture (at x and y) or in text. */
export function LineIcon({ path, x, y }: { path: string; x?: number; y?: number }): ReactNode {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" x={x} y={y} aria-hidden="true" focusable="false">
      <path d={path} fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}

/** The gate with the flow through it, as in the favicon. */
export function Logo(): ReactNode {
  return (
    <svg className="logo" viewBox="0 0 32 32" width="28" height="28" aria-hidden="true" focusable="false">
      <rect className="logo__ground" width="32" height="32" rx="7" />
      <path className="logo__gate" d="M9 7v18M23 7v18" strokeWidth="3" strokeLinecap="round" />
      <path
        className="logo__flow"
        d="M9 12c5 0 9 4 14 4M9 18c5 0 9 4 14 4"
        strokeWidth="2.5"
        fill="none"
        strokeLinecap="round"
      />
    </svg>
  );
}
