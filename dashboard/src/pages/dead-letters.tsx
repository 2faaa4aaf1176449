/**
 * Dead letters: accepted requests that could not be processed, with the cause, and a retry of one or of all. They are a
 * bug of Sluice and rare, so nothing is shown where there are none.
 */

import { type ReactNode, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { shortId } from '../identity-names.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { DeadLetter, DeadLetterPage, Job } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { ListEnd } from '../ui/list-end.tsx';
import { ErrorNotice } from '../ui/notice.tsx';
import { usePages } from '../use-pages.ts';
import { JobProgress } from './jobs.tsx';

const PAGE_LETTERS = 20;

/** `onJob` is called when a retry was made, and when it is done. */
export function DeadLetters({ onJob }: { onJob: () => void }): ReactNode {
  const environment = useEnvironment();
  const list = usePages<DeadLetterPage>(`/dead-letters?limit=${PAGE_LETTERS}`);
  const [job, setJob] = useState<Job>();
  const [busy, setBusy] = useState<string>();
  const [error, setError] = useState<ApiError>();
  const letters = list.pages.flatMap((page) => page.dead_letters);
  const retry = async (id: string): Promise<void> => {
    setBusy(id);
    setError(undefined);
    try {
      const isAll = id === ALL;
      const path = isAll ? '/dead-letters/retry' : `/dead-letters/${id}/retry`;
      setJob(await send<Job>(environment, 'POST', path, isAll ? { filter: {} } : undefined));
      onJob();
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError('That did not work.', 0, null));
    }
    setBusy(undefined);
  };
  if (letters.length === 0 && job === undefined && list.error === undefined) return null;
  const canRetry = letters.some(({ can_retry: can }) => can);
  const columns: readonly Column<DeadLetter>[] = [
    { key: 'at', label: 'Received', render: ({ received_at: at }) => <Time at={at} /> },
    {
      key: 'cause',
      label: 'Cause',
      render: ({ cause }) => <code>{cause}</code>,
    },
    { key: 'users', label: 'Users', align: 'end', render: ({ users }) => formatNumber(users) },
    { key: 'events', label: 'Events', align: 'end', render: ({ events }) => formatNumber(events) },
    {
      key: 'trace',
      label: 'Trace',
      render: ({ trace_id: id }) => (
        <Link to={viewPath(environment, `traces/${id}`)} className="mono whole" title={id}>
          {shortId(id)}
        </Link>
      ),
    },
    {
      key: 'act',
      label: '',
      render: ({ id, can_retry: can }) =>
        can ? (
          <Button busy={busy === id} onClick={() => void retry(id)}>
            Retry
          </Button>
        ) : (
          <span className="muted">not kept</span>
        ),
    },
  ];
  return (
    <Card
      title="Dead letters"
      actions={
        canRetry && (
          <Button busy={busy === ALL} onClick={() => void retry(ALL)}>
            Retry all
          </Button>
        )
      }
    >
      <p>
        Accepted requests that could not be processed, because of a bug in Sluice, unless the cause says that the tables
        were changed. They are kept, and nothing else waits for them. Report the cause; after an upgrade that fixes it,
        retry them.
      </p>
      {job !== undefined && (
        <JobProgress
          key={job.id}
          made={job}
          onEnd={() => {
            list.reload();
            onJob();
          }}
        />
      )}
      {error !== undefined && <ErrorNotice error={error} />}
      {letters.length > 0 && (
        <DataTable caption="Dead letters, newest first" columns={columns} rows={letters} rowKey={({ id }) => id} />
      )}
      <ListEnd
        list={list}
        more="Show older"
        end={letters.length === 0 ? 'None are left.' : 'That is every dead letter.'}
      />
    </Card>
  );
}

/** In place of an id. */
const ALL = 'all';
