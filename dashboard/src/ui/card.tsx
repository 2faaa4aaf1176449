/**
 * A surface that groups things that belong together, with an optional heading and what can be done with them. Headings
 * are of the second level: a `Page` has the first.
 */

import { type ReactNode, useId } from 'react';

interface CardProps {
  readonly title?: ReactNode;
  readonly actions?: ReactNode;
  readonly className?: string;
  readonly children: ReactNode;
}

export function Card({ title, actions, className, children }: CardProps): ReactNode {
  const id = useId();
  const name = className === undefined ? 'card' : `card ${className}`;
  if (title === undefined && actions === undefined) return <div className={name}>{children}</div>;
  return (
    <section className={name} aria-labelledby={title === undefined ? undefined : id}>
      <header className="card__head">
        {title !== undefined && (
          <h2 className="card__title" id={id}>
            {title}
          </h2>
        )}
        {actions !== undefined && <div className="card__actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}
