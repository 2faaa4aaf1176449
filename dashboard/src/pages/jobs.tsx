/**
 * Jobs: resubmits of rejected users and retries of dead letters. One with its progress, as it is watched by the person who
 * made it, and the list of all, newest first. Those that run can be stopped, those that are stopped resumed.
 */

import { type ReactNode, useEffect, useEffectEvent, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { Job, JobPage } from '../api-types.ts';
import { Badge, type Tone } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { ListEnd } from '../ui/list-end.tsx';
import { ErrorNotice, Notice } from '../ui/notice.tsx';
import { useData } from '../use-data.ts';
import { usePages } from '../use-pages.ts';
import '../styles/jobs.css';

const WATCH_MS = 500;
const LIST_MS = 2_000;
const PAGE_JOBS = 5;
const PROBLEMS_SHOWN = 3;

const STATUS_TONES: Readonly<Record<Job['status'], Tone>> = { running: 'good', stopped: 'warn', done: 'quiet' };

/** `onEnd` is called once, when it is done. */
export function JobProgress({ made, onEnd }: { made: Job; onEnd: () => void }): ReactNode {
  const environment = useEnvironment();
  const [isDone, setIsDone] = useState(made.status === 'done');
  const { data: job = made, error, reload } = useData<Job>(`/jobs/${made.id}`, isDone ? {} : { everyMs: WATCH_MS });
  const hasEnded = job.status === 'done';
  if (hasEnded && !isDone) setIsDone(true);
  const end = useEffectEvent(onEnd);
  useEffect(() => {
    if (hasEnded) end();
  }, [hasEnded]);
  return (
    <>
      {hasEnded ? (
        <Outcome job={job} />
      ) : (
        <div className="job-progress">
          <ProgressBar job={job} />
          <JobButton job={job} onChanged={reload} />
        </div>
      )}
      {error !== undefined && <ErrorNotice error={error} />}
      <p className="small">
        In the <Link to={viewPath(environment, 'audit')}>audit</Link> as <code>{job.id}</code>.
        {job.status === 'running' && ' It continues if you leave this page.'}
      </p>
    </>
  );
}

function ProgressBar({ job }: { job: Job }): ReactNode {
  const seen = job.matched - job.left;
  return (
    <label className="job-bar">
      <span>
        {formatNumber(seen)} of {formatNumber(job.matched)}
        {job.status === 'stopped' && ', stopped'}
      </span>
      <progress max={Math.max(1, job.matched)} value={seen} />
    </label>
  );
}

function Outcome({ job }: { job: Job }): ReactNode {
  const { kind, resubmitted, already, problems } = job;
  const left = job.still_rejected + job.cut + job.failed;
  const [one, many] = kind === 'retry' ? ['request is', 'requests are'] : ['user is', 'users are'];
  const none = kind === 'retry' ? 'Nothing could be processed.' : 'No user was accepted.';
  const title =
    resubmitted === 0 ? none : `Accepted: ${formatNumber(resubmitted)} ${resubmitted === 1 ? one : many} stored now.`;
  return (
    <Notice tone={left + job.gone === 0 ? 'good' : 'warn'} title={<output>{title}</output>}>
      {left > 0 && (
        <p>
          {formatNumber(left)} {kind === 'retry' ? 'failed again' : 'stayed rejected'}:
        </p>
      )}
      {problems.length > 0 && (
        <ul className="bullets">
          {problems.slice(0, PROBLEMS_SHOWN).map(({ id, message }) => (
            <li key={id}>
              <bdi>{message}</bdi>
            </li>
          ))}
        </ul>
      )}
      {job.gone > 0 && <p>Gone before the job reached them: {formatNumber(job.gone)}.</p>}
      {already > 0 && <p>Resubmitted by someone else meanwhile: {formatNumber(already)}.</p>}
    </Notice>
  );
}

/** Stops or resumes; a single user is a moment’s work, and is not stopped. */
function JobButton({ job, onChanged }: { job: Job; onChanged: () => void }): ReactNode {
  const environment = useEnvironment();
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  if (job.status === 'done' || (job.status === 'running' && job.matched === 1)) return null;
  const act = job.status === 'running' ? 'stop' : 'resume';
  const change = async (): Promise<void> => {
    setIsBusy(true);
    setError(undefined);
    try {
      await send<Job>(environment, 'POST', `/jobs/${job.id}/${act}`);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError('That did not work.', 0, null));
    }
    setIsBusy(false);
    onChanged();
  };
  return (
    <>
      <Button busy={isBusy} onClick={() => void change()}>
        {act === 'stop' ? 'Stop' : 'Resume'}
      </Button>
      {error !== undefined && <ErrorNotice error={error} />}
    </>
  );
}

/** Nothing where there are none. `onEnd` is called when all that are shown are done. */
export function JobList({ onEnd }: { onEnd: () => void }): ReactNode {
  const [isWatched, setIsWatched] = useState(true);
  const list = usePages<JobPage>(`/jobs?limit=${PAGE_JOBS}`, isWatched ? { everyMs: LIST_MS } : {});
  const jobs = list.pages.flatMap((page) => page.jobs);
  const isOpen = list.isLoading || jobs.some(({ status }) => status !== 'done');
  if (isOpen !== isWatched) setIsWatched(isOpen);
  const end = useEffectEvent(onEnd);
  useEffect(() => {
    if (!isOpen) end();
  }, [isOpen]);
  if (jobs.length === 0) return null;
  const columns: readonly Column<Job>[] = [
    ...COLUMNS,
    {
      key: 'act',
      label: '',
      render: (job) => (job.status === 'done' ? null : <JobButton job={job} onChanged={list.reload} />),
    },
  ];
  return (
    <Card title="Jobs">
      <DataTable caption="Resubmits and retries, newest first" columns={columns} rows={jobs} rowKey={({ id }) => id} />
      <ListEnd list={list} more="Show older" end="That is every job that is kept." />
    </Card>
  );
}

const COLUMNS: readonly Column<Job>[] = [
  { key: 'at', label: 'Started', render: ({ created_at: at }) => <Time at={at} /> },
  { key: 'kind', label: 'What', render: (job) => kindWords(job) },
  { key: 'status', label: 'Status', render: ({ status }) => <Badge tone={STATUS_TONES[status]}>{status}</Badge> },
  { key: 'counts', label: 'Result', render: (job) => <Result job={job} /> },
];

function kindWords({ kind, matched }: Job): string {
  const [one, many] = kind === 'retry' ? ['dead letter', 'dead letters'] : ['rejected user', 'rejected users'];
  return `${kind === 'retry' ? 'Retry' : 'Resubmit'} of ${formatNumber(matched)} ${matched === 1 ? one : many}`;
}

function Result({ job }: { job: Job }): ReactNode {
  const counts = [
    [job.resubmitted, 'stored'],
    [job.still_rejected, 'still rejected'],
    [job.failed, 'failed'],
    [job.cut, 'too large to be patched'],
    [job.already, 'resubmitted by another job'],
    [job.gone, 'gone before the job reached them'],
  ] as const;
  const words = counts.flatMap(([count, what]) => (count === 0 ? [] : [`${formatNumber(count)} ${what}`]));
  return (
    <div className="job-result">
      {job.status !== 'done' && <ProgressBar job={job} />}
      {words.length > 0 && <span>{words.join(', ')}</span>}
      {words.length === 0 && job.status === 'done' && <span>nothing was left to do</span>}
      {job.problems[0] !== undefined && <bdi className="muted small">{job.problems[0].message}</bdi>}
    </div>
  );
}
