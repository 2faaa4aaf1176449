/** The end of a list that is read page by page: an error, a way to continue, or that this is all. */

import type { ReactNode } from 'react';
import type { Pages } from '../use-pages.ts';
import { Button } from './button.tsx';
import { ErrorNotice } from './notice.tsx';

interface ListEndProps {
  readonly list: Pick<Pages<unknown>, 'hasMore' | 'isBusy' | 'error' | 'loadMore' | 'reload' | 'pages'>;
  /** Of the button. */
  readonly more: string;
  /** When nothing is left. */
  readonly end: ReactNode;
}

export function ListEnd({ list, more, end }: ListEndProps): ReactNode {
  const { hasMore, isBusy, error, loadMore, reload, pages } = list;
  return (
    <div className="list-end">
      {error !== undefined && <ErrorNotice error={error} onRetry={pages.length === 0 ? reload : loadMore} />}
      {error === undefined && hasMore && (
        <Button busy={isBusy} onClick={loadMore}>
          {more}
        </Button>
      )}
      {error === undefined && !hasMore && pages.length > 0 && <p className="muted">{end}</p>}
    </div>
  );
}
