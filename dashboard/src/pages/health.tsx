/**
 * Health: whether the server takes events in, how near it is to its bounds, what to do when something is not well, and
 * the settings in effect. All of it is about the whole server, whatever the account and the environment. It changes
 * nothing.
 */

import type { ReactNode } from 'react';
import { useQueryValue } from '../router.tsx';
import { formatBytes, formatDuration, formatNumber, Time, useNow } from '../time.tsx';
import { SECOND_MS } from '../time-units.ts';
import type { Health } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { Code } from '../ui/code.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { type Advice, adviceFor } from './health-advice.ts';
import { Meter } from './meter.tsx';
import { type Outcome, outcomesOf } from './request-outcomes.ts';
import '../styles/health.css';

const RELOAD_MS = 5_000;

export default function HealthPage(): ReactNode {
  const { data, error, reload } = useData<Health>('/health', { everyMs: RELOAD_MS });
  return (
    <Page title="Health">
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="health" />}
      {data !== undefined && (
        <>
          <Status health={data} isOld={error !== undefined} />
          <AdviceCard advice={adviceFor(data)} />
          <Bounds health={data} />
          <Requests requests={data.requests} />
          <Settings settings={data.settings} />
        </>
      )}
    </Page>
  );
}

function Status({ health, isOld }: { health: Health; isOld: boolean }): ReactNode {
  const now = useNow();
  const { status, reasons, version, node, started_at: startedAt, edges } = health;
  const isReady = status === 'ready';
  return (
    <Card className={isReady ? 'health-status' : 'health-status health-status--bad'}>
      <div className="health-status__head">
        <output className="health-status__words">{isReady ? 'Ready' : 'Not ready'}</output>
        {isOld && <Badge tone="warn">As of a while ago</Badge>}
      </div>
      <p>
        {isReady
          ? 'Events are accepted.'
          : 'Events may get 503 with Retry-After, so that clients retry. Everything accepted is safe.'}
      </p>
      {reasons.length > 0 && (
        <ul className="health-status__reasons">
          {reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
      <dl className="health-facts">
        <Fact label="Version">{version}</Fact>
        <Fact label="Node.js">{node}</Fact>
        <Fact label="Up for">
          {formatDuration(Math.max(now - Date.parse(startedAt), 0) / SECOND_MS)}{' '}
          <span className="muted small">
            since <Time at={startedAt} />
          </span>
        </Fact>
        <Fact label="Edge threads">{formatNumber(edges)}</Fact>
      </dl>
    </Card>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div className="health-fact">
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function AdviceCard({ advice }: { advice: readonly Advice[] }): ReactNode {
  if (advice.length === 0) return null;
  return (
    <Card title="What to do">
      {advice.map(({ tone, title, text }) => (
        <Notice key={title} tone={tone} title={title}>
          <p>{text}</p>
        </Notice>
      ))}
      <p>This checks everything that tends to go wrong, and changes nothing. Run it on the server:</p>
      <Code text="npx sluice doctor" language="shell" />
    </Card>
  );
}

function Bounds({ health }: { health: Health }): ReactNode {
  const { ledger_difference: difference, dead_letters: deadLetters } = health;
  const { disk_free_bytes: diskFree, disk_free_bytes_min: diskMin } = health;
  return (
    <div className="health-bounds">
      <Bound
        label="Backlog"
        value={health.backlog_bytes === null ? 'not measured yet' : formatBytes(health.backlog_bytes)}
        detail={`accepted and not yet processed; at most ${formatBytes(health.backlog_bytes_max)}`}
      >
        <Meter
          label="Backlog"
          value={health.backlog_bytes ?? 0}
          max={health.backlog_bytes_max}
          warnAbove={0.5}
          badAbove={0.8}
        />
      </Bound>
      {diskFree !== null && (
        <Bound
          label="Free disk"
          value={formatBytes(diskFree)}
          detail={diskMin > 0 ? `refuses events below ${formatBytes(diskMin)}` : 'no minimum is set'}
        >
          {diskMin > 0 && (
            <Meter
              label="Minimum of free disk against what is free"
              value={diskMin}
              max={Math.max(diskFree, diskMin)}
              warnAbove={0.5}
              badAbove={0.9}
            />
          )}
        </Bound>
      )}
      {health.lag_seconds !== null && (
        <Bound label="Lag" value={formatDuration(health.lag_seconds)} detail="from receipt to reading back" />
      )}
      <Bound label="Memory" value={formatBytes(health.memory_bytes)} detail="of the whole process" />
      {difference !== null && (
        <Bound
          label="Reconciliation"
          value={difference === 0 ? 'Balanced' : `${formatNumber(Math.abs(difference))} off`}
          detail={difference === 0 ? 'all that was received is accounted for' : 'received, and not accounted for'}
          isBad={difference !== 0}
        />
      )}
      <Bound
        label="Dead letters"
        value={formatNumber(deadLetters)}
        detail={deadLetters === 0 ? 'every record could be processed' : 'records that could not be processed'}
        isBad={deadLetters !== 0}
      />
    </div>
  );
}

interface BoundProps {
  readonly label: string;
  readonly value: string;
  readonly detail: string;
  readonly isBad?: boolean;
  readonly children?: ReactNode;
}

function Bound({ label, value, detail, isBad = false, children }: BoundProps): ReactNode {
  return (
    <section className={isBad ? 'health-bound health-bound--bad' : 'health-bound'} aria-label={label}>
      <h2 className="health-bound__label">{label}</h2>
      <p className="health-bound__value">{value}</p>
      {children}
      <p className="health-bound__detail">{detail}</p>
    </section>
  );
}

const OUTCOME_COLUMNS: readonly Column<Outcome>[] = [
  { key: 'status', label: 'Response', render: ({ status, tone }) => <Badge tone={tone}>{status}</Badge> },
  {
    key: 'meaning',
    label: 'What it means',
    render: ({ title, text }) => (
      <div className="health-setting">
        {title}
        <p className="muted small">{text}</p>
      </div>
    ),
  },
  { key: 'requests', label: 'Requests', align: 'end', render: ({ requests }) => formatNumber(requests) },
];

/** Rejected requests show on no other view, since they belong to no account. */
function Requests({ requests }: { requests: Health['requests'] }): ReactNode {
  return (
    <Card title="Requests with events since the start">
      <p className="muted">Of the whole server, all accounts and environments together, by response.</p>
      {requests.length === 0 ? (
        <p>None yet.</p>
      ) : (
        <DataTable
          caption="Requests by response"
          columns={OUTCOME_COLUMNS}
          rows={outcomesOf(requests)}
          rowKey={({ status }) => String(status)}
        />
      )}
    </Card>
  );
}

type Setting = Health['settings'][number];

const SOURCE_WORDS: Readonly<Record<Setting['source'], string>> = {
  default: 'default',
  environment: 'environment',
  flag: 'command line',
};

const COLUMNS: readonly Column<Setting>[] = [
  {
    key: 'name',
    label: 'Setting',
    render: ({ name, description }) => (
      <div className="health-setting">
        <code>{name}</code>
        <p className="muted small">{description}</p>
      </div>
    ),
  },
  { key: 'value', label: 'Value', render: ({ value }) => <SettingValue value={value} /> },
  {
    key: 'default',
    label: 'Default',
    render: ({ default: value }) => (
      <span className="muted health-default">
        <SettingValue value={value} />
      </span>
    ),
  },
  {
    key: 'source',
    label: 'From',
    render: ({ source }) => <Badge tone={source === 'default' ? 'quiet' : 'good'}>{SOURCE_WORDS[source]}</Badge>,
  },
];

function SettingValue({ value }: { value: Setting['value'] }): ReactNode {
  if (value === '') return <span className="muted">not set</span>;
  return <code>{value}</code>;
}

function Settings({ settings }: { settings: Health['settings'] }): ReactNode {
  const [filter, setFilter] = useQueryValue('setting');
  const words = filter.toLowerCase();
  const shown = settings.filter(({ name, description, source }) =>
    `${name} ${description} ${SOURCE_WORDS[source]}`.toLowerCase().includes(words),
  );
  return (
    <Card title="Settings in effect">
      <TextField
        label="Find a setting"
        type="search"
        className="health-find"
        value={filter}
        placeholder="name, description or origin"
        onChange={(event) => setFilter(event.target.value, { replace: true })}
      />
      {shown.length === 0 ? (
        <output className="muted">No setting has that in its name or description.</output>
      ) : (
        <DataTable caption="Settings in effect" columns={COLUMNS} rows={shown} rowKey={({ name }) => name} />
      )}
    </Card>
  );
}
