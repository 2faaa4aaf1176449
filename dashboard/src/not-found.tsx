/** What is shown at an address that is not a view. */

import type { ReactNode } from 'react';
import { environmentOf, Link, useAddress } from './router.tsx';
import { Logo } from './ui/icons.tsx';
import { Page } from './ui/page.tsx';

export function NotFound(): ReactNode {
  const { path } = useAddress();
  const words = (
    <Page title="There is nothing here">
      <p>
        No view has the address <code>{path}</code>. It may have been shortened when it was copied.
      </p>
      <p>
        <Link to="/dashboard">Go to the overview</Link>
      </p>
    </Page>
  );
  if (environmentOf(path) !== undefined) return words;
  return (
    <main className="gate">
      <p className="gate__brand">
        <Logo /> Sluice
      </p>
      {words}
    </main>
  );
}
