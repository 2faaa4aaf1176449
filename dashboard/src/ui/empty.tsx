/** What stands where there is nothing yet: says so plainly, and what would put something there. */

import type { ReactNode } from 'react';

export function Empty({ title, children }: { title: string; children?: ReactNode }): ReactNode {
  return (
    <div className="empty">
      <p className="empty__title">{title}</p>
      <div className="empty__words">{children}</div>
    </div>
  );
}
