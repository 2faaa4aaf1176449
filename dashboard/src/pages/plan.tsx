/**
 * The tracking plan: which events are expected, how each is checked, and what is violated. A mode can be changed here, and
 * the whole plan edited as the file that it is. A change is made from the version that is shown: if another one was pushed
 * meanwhile, the server refuses it and says so. Mistakes are shown with their paths.
 */

import { type ReactNode, useState } from 'react';
import { ApiError, send } from '../api.ts';
import type { CurrentPlan, PlanViolation, PlanViolations, PushedPlan } from '../api-types.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { jsonSource } from '../ui/json-lines.ts';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import '../styles/plan.css';

const RELOAD_MS = 5_000;
const MODES = ['off', 'warn', 'enforce'] as const;
const UNPLANNED_MODES = ['allow', 'warn', 'reject'] as const;

interface Planned {
  readonly mode?: string;
  readonly description?: string;
  readonly schema?: {
    readonly properties?: Readonly<Record<string, unknown>>;
    readonly required?: readonly string[];
  };
}

interface Plan {
  readonly unplanned_events?: string;
  readonly events?: Readonly<Record<string, Planned>>;
  readonly user_properties?: Planned;
  readonly profile_fields?: Planned;
}

/** One row of the table: an event, or what is of the user. */
interface Row {
  readonly name: string;
  readonly planned: Planned;
  readonly of: 'event' | 'user_properties' | 'profile_fields';
}

export default function PlanPage(): ReactNode {
  const environment = useEnvironment();
  const { data, error, reload } = useData<CurrentPlan>('/plan', { everyMs: RELOAD_MS });
  const violations = useData<PlanViolations>('/plan/violations', { everyMs: RELOAD_MS });
  const [failure, setFailure] = useState<ApiError | undefined>(undefined);
  const [saved, setSaved] = useState<PushedPlan | undefined>(undefined);

  const save = async (plan: unknown): Promise<boolean> => {
    setFailure(undefined);
    setSaved(undefined);
    try {
      setSaved(await send<PushedPlan>(environment, 'PUT', '/plan', plan));
      reload();
      return true;
    } catch (cause) {
      setFailure(cause instanceof ApiError ? cause : new ApiError(String(cause), 0, null));
      return false;
    }
  };

  return (
    <Page title="Plan">
      <p className="lead">
        Which events are expected in {environment}, and what their properties look like. The plan is a file that lives
        in git: <code>sluice plan pull</code>, <code>push</code>.
      </p>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="the plan" />}
      {failure !== undefined && (
        <Notice tone="bad" title="The plan was not saved">
          <p className="plan-mistakes">{failure.message}</p>
        </Notice>
      )}
      {saved !== undefined && (
        <Notice tone="good" title={`Version ${saved.version} is saved. Servers use it within 2 seconds.`} />
      )}
      {data !== undefined && (
        <>
          <Events
            current={data}
            violations={violations.data?.violations ?? []}
            onChange={(plan) => void save({ ...plan, version: data.version })}
          />
          <Violations violations={violations.data?.violations} version={data.version} />
          <Editor current={data} onSave={save} />
        </>
      )}
    </Page>
  );
}

interface EventsProps {
  readonly current: CurrentPlan;
  readonly violations: readonly PlanViolation[];
  readonly onChange: (plan: Plan) => void;
}

function Events({ current, violations, onChange }: EventsProps): ReactNode {
  const plan = current.plan as Plan;
  const rows = rowsOf(plan);
  const counted = violations.filter(({ version }) => version === current.version);
  return (
    <Card
      title={current.version === 0 ? 'No plan yet' : `Version ${current.version}`}
      actions={
        <ModeSelect
          label="Other events"
          isLabelShown
          choices={UNPLANNED_MODES}
          value={plan.unplanned_events ?? 'allow'}
          onChange={(mode) => onChange({ ...plan, unplanned_events: mode })}
        />
      }
    >
      {current.created_at !== null && (
        <p className="muted plan-about">
          Pushed <Time at={current.created_at} relative />
        </p>
      )}
      {rows.length === 0 ? (
        <Empty title="Every event is allowed">
          <p>
            Write a plan below, or push a file: <code>sluice plan push</code>.
          </p>
        </Empty>
      ) : (
        <DataTable
          caption="Planned events"
          rows={rows}
          rowKey={({ of, name }) => `${of} ${name}`}
          columns={[
            { key: 'name', label: 'Event', render: (row) => <Name row={row} /> },
            { key: 'properties', label: 'Properties', render: ({ planned }) => <Properties planned={planned} /> },
            {
              key: 'violations',
              label: 'Violations',
              align: 'end',
              render: (row) => formatNumber(sumOf(counted.filter((one) => isOf(one, row)))),
            },
            {
              key: 'mode',
              label: 'Mode',
              render: (row) => (
                <ModeSelect
                  label={`Mode of ${row.name}`}
                  choices={MODES}
                  value={row.planned.mode ?? 'warn'}
                  onChange={(mode) => onChange(withMode(plan, row, mode))}
                />
              ),
            },
          ]}
        />
      )}
    </Card>
  );
}

function rowsOf(plan: Plan): Row[] {
  const rows: Row[] = Object.entries(plan.events ?? {}).map(([name, planned]) => ({ name, planned, of: 'event' }));
  if (plan.user_properties !== undefined) {
    rows.push({ name: 'user_properties', planned: plan.user_properties, of: 'user_properties' });
  }
  if (plan.profile_fields !== undefined) {
    rows.push({ name: 'profile fields', planned: plan.profile_fields, of: 'profile_fields' });
  }
  return rows;
}

function isOf({ event_name: eventName, path }: PlanViolation, { of, name }: Row): boolean {
  if (of === 'event') return eventName === name;
  return eventName === null && path.startsWith(of === 'user_properties' ? 'user_properties' : 'identifiers');
}

function sumOf(violations: readonly PlanViolation[]): number {
  return violations.reduce((sum, { count }) => sum + count, 0);
}

function withMode(plan: Plan, { of, name, planned }: Row, mode: string): Plan {
  const changed = { ...planned, mode };
  if (of === 'event') return { ...plan, events: { ...plan.events, [name]: changed } };
  return { ...plan, [of]: changed };
}

function Name({ row: { name, planned } }: { row: Row }): ReactNode {
  return (
    <>
      <bdi className="mono">{name}</bdi>
      {planned.description !== undefined && <span className="muted plan-about">{planned.description}</span>}
    </>
  );
}

function Properties({ planned: { schema } }: { planned: Planned }): ReactNode {
  const entries = Object.entries(schema?.properties ?? {});
  if (entries.length === 0) return <span className="muted">any</span>;
  return (
    <ul className="plan-properties">
      {entries.map(([name, property]) => (
        <li key={name}>
          <bdi className="mono">{name}</bdi> <span className="muted">{typeOf(property)}</span>
          {schema?.required?.includes(name) === true && <Badge tone="quiet">required</Badge>}
          {isPersonal(property) && <Badge tone="warn">personal</Badge>}
        </li>
      ))}
    </ul>
  );
}

function typeOf(property: unknown): string {
  const type = (property as { type?: string | string[] } | null)?.type;
  return type === undefined ? '' : [type].flat().join(' or ');
}

function isPersonal(property: unknown): boolean {
  return (property as Record<string, unknown> | null)?.['x-personal'] === true;
}

interface ModeSelectProps {
  readonly label: string;
  readonly isLabelShown?: boolean;
  readonly choices: readonly string[];
  readonly value: string;
  readonly onChange: (mode: string) => void;
}

function ModeSelect({ label, isLabelShown = false, choices, value, onChange }: ModeSelectProps): ReactNode {
  return (
    <label className="plan-mode">
      <span className={isLabelShown ? undefined : 'for-screen-readers'}>{label}</span>
      <select
        className="field__input field__input--select plan-mode__select"
        value={value}
        onChange={(event) => onChange(event.target.value)}
      >
        {choices.map((choice) => (
          <option key={choice} value={choice}>
            {choice}
          </option>
        ))}
      </select>
    </label>
  );
}

function Violations({
  violations,
  version,
}: {
  violations: readonly PlanViolation[] | undefined;
  version: number;
}): ReactNode {
  const environment = useEnvironment();
  if (violations === undefined || (violations.length === 0 && version === 0)) return null;
  return (
    <Card title="Violations">
      {violations.length === 0 ? (
        <Empty title="No violations">
          <p>Events that violate what the plan warns about are counted here. What is enforced is under Rejected.</p>
        </Empty>
      ) : (
        <DataTable
          caption="Violations, the most frequent first"
          rows={violations}
          rowKey={(one) => `${one.version} ${one.event_name} ${one.path} ${one.message}`}
          columns={[
            { key: 'event', label: 'Event', render: (one) => <bdi className="mono">{one.event_name ?? '–'}</bdi> },
            { key: 'path', label: 'Where', render: (one) => <code>{one.path}</code> },
            { key: 'message', label: 'What', render: (one) => <bdi>{one.message}</bdi> },
            { key: 'version', label: 'Version', align: 'end', render: (one) => one.version },
            { key: 'count', label: 'Count', align: 'end', render: (one) => formatNumber(one.count) },
            {
              key: 'last',
              label: 'Last',
              render: (one) => (
                <Link to={viewPath(environment, `traces/${one.trace_id}`)} title={one.trace_id}>
                  <Time at={one.last_at} relative />
                </Link>
              ),
            },
          ]}
        />
      )}
    </Card>
  );
}

interface EditorProps {
  readonly current: CurrentPlan;
  readonly onSave: (plan: unknown) => Promise<boolean>;
}

/** Keeps the version that it was opened with: a concurrent push must not replace what is being edited. */
function Editor({ current, onSave }: EditorProps): ReactNode {
  const [base, setBase] = useState(current);
  const [text, setText] = useState(() => jsonSource(current.plan));
  if (base.version !== current.version && (text === jsonSource(base.plan) || text === jsonSource(current.plan))) {
    setBase(current);
    setText(jsonSource(current.plan));
  }
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const saveText = async (): Promise<void> => {
    let plan: unknown;
    try {
      plan = JSON.parse(text);
    } catch (cause) {
      setProblem(`This is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
      return;
    }
    setProblem(undefined);
    setIsBusy(true);
    const isObject = typeof plan === 'object' && plan !== null;
    // As it will be shown, so that the new version is taken for what was written.
    if (await onSave(isObject ? { ...(plan as object), version: base.version } : plan)) setText(jsonSource(plan));
    setIsBusy(false);
  };
  return (
    <details className="plan-editor">
      <summary>Edit the plan</summary>
      <textarea
        className="field__input plan-editor__text mono"
        aria-label="The plan as JSON"
        spellCheck={false}
        rows={24}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {problem !== undefined && <Notice tone="bad" title={problem} />}
      <p className="form-end form-end--start">
        <Button kind="primary" busy={isBusy} onClick={() => void saveText()}>
          Save as version {base.version + 1}
        </Button>
      </p>
    </details>
  );
}
