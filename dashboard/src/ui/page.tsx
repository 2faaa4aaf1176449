/**
 * The frame of every view: its heading, what can be done with it, and its content. Sets the document's title, and takes
 * the focus when the view was just gone to, so that keyboard and screen reader start where the eye does.
 */

import { type ReactNode, useEffect, useRef } from 'react';
import { takeFocusWanted, useAddress } from '../router.tsx';

interface PageProps {
  readonly title: string;
  readonly actions?: ReactNode;
  readonly children: ReactNode;
}

export function Page({ title, actions, children }: PageProps): ReactNode {
  const heading = useRef<HTMLHeadingElement>(null);
  const { path } = useAddress();

  useEffect(() => {
    document.title = `${title} · Sluice`;
  }, [title]);

  useEffect(() => {
    if (takeFocusWanted(path)) heading.current?.focus({ preventScroll: true });
  }, [path]);

  return (
    <div className="page">
      <header className="page__head">
        <h1 className="page__title" tabIndex={-1} ref={heading}>
          {title}
        </h1>
        {actions !== undefined && <div className="page__actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}
