/**
 * Try a request: paste one, see the response and its effect on profiles, and send it. The check stores nothing. It uses
 * the public API with an API key, like any client; the key is held in memory only and is dropped when the user leaves
 * the view. The checked request is sent byte for byte; after an edit it has to be checked again.
 */

import { type ReactNode, useMemo, useRef, useState } from 'react';
import { type ApiError, asApiError, ingest, send } from '../api.ts';
import { rangeAt, rangeOf, type TextRange } from '../json-ranges.ts';
import { peopleIn } from '../predicted-identity.ts';
import { adviceFor } from '../rejection-advice.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { Environment } from '../api-constants.ts';
import type { CheckResponse, CreatedKey, PredictedUser } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { PredictedPersonCard } from './predicted-person.tsx';
import { RequestEditor, select } from './request-editor.tsx';
import '../styles/identity.css';
import '../styles/try-request.css';

const PEOPLE_SHOWN_MAX = 10;
const SAMPLE = `{
  "users": [
    {
      "identifiers": { "user_id": "u-1042", "anon_id": "anon-7f3c" },
      "user_properties": { "plan": "pro" },
      "events": [
        { "event_name": "order_placed", "revenue": 49.9, "currency": "EUR" }
      ]
    }
  ]
}
`;

interface Checked {
  /** What was checked. */
  readonly text: string;
  readonly at: string;
  readonly response: CheckResponse;
}

interface Sent {
  readonly traceId: string;
}

export default function TryRequestPage(): ReactNode {
  const environment = useEnvironment();
  const [key, setKey] = useState('');
  const [text, setText] = useState(SAMPLE);
  const [checked, setChecked] = useState<Checked>();
  const [sent, setSent] = useState<Sent>();
  const [busy, setBusy] = useState<'key' | 'check' | 'send'>();
  const [error, setError] = useState<ApiError>();
  const field = useRef<HTMLTextAreaElement>(null);
  const keyProblem = problemOfKey(key, environment);
  const isReady = key !== '' && keyProblem === undefined;
  const isCurrent = checked?.text === text;
  const problems = useMemo(() => (checked === undefined ? [] : problemsIn(checked)), [checked]);
  const wouldAccept = isCurrent && checked.response.would_respond.status === 202;

  const run = (what: 'key' | 'check' | 'send', work: () => Promise<void>): void => {
    setBusy(what);
    setError(undefined);
    work()
      .catch((cause: unknown) => setError(asApiError(cause)))
      .finally(() => setBusy(undefined));
  };
  const makeKey = (): void =>
    run('key', async () => {
      const name = `try a request, from the dashboard`;
      const made = await send<CreatedKey>(environment, 'POST', '/keys', { name, kind: 'secret', environment });
      setKey(made.key);
    });
  const check = (): void =>
    run('check', async () => {
      const response = await ingest<CheckResponse>('/ingest/events/check', key, text);
      setSent(undefined);
      setChecked({ text, at: new Date().toISOString(), response });
    });
  const sendIt = (): void =>
    run('send', async () => {
      const { trace_id: traceId } = await ingest<{ trace_id: string }>('/ingest/events', key, text);
      setSent({ traceId });
      // What it would do once more is another matter.
      setChecked(undefined);
    });
  const show = ({ start, end }: TextRange): void => {
    if (field.current !== null) select(field.current, { start, end });
  };

  return (
    <Page title="Try a request">
      <p className="lead">
        See what the server would respond, and what the request would do to people. A check stores nothing.
      </p>
      <div className="try">
        <Card>
          <div className="form">
            <div className="try-key">
              <TextField
                label="API key"
                hint="A secret key. It is kept on this page only, until you leave it."
                type="password"
                autoComplete="off"
                error={keyProblem}
                value={key}
                onChange={(event) => setKey(event.target.value.trim())}
              />
              {key === '' && (
                <Button busy={busy === 'key'} onClick={makeKey}>
                  Make a {environment} key
                </Button>
              )}
            </div>
            <RequestEditor
              text={text}
              marks={isCurrent ? problems.flatMap(({ range }) => (range === null ? [] : [range])) : []}
              field={field}
              onChange={setText}
              onSubmit={isReady ? check : () => undefined}
            />
            <div className="form-end form-end--start">
              <Button kind="primary" busy={busy === 'check'} disabled={!isReady} onClick={check}>
                Check
              </Button>
              <Button busy={busy === 'send'} disabled={!wouldAccept || !isReady} onClick={sendIt}>
                Send it
              </Button>
              <span className="muted small">
                {key === '' ? 'Needs a key.' : isCurrent || sent !== undefined ? '' : 'Not checked yet.'}
              </span>
            </div>
          </div>
        </Card>
        <div className="try-results" aria-live="polite">
          {error !== undefined && <ErrorNotice error={error} />}
          {sent !== undefined && (
            <Notice tone="good" title="Sent, and durable">
              <Link to={viewPath(environment, `traces/${sent.traceId}`)}>See its trace</Link>
            </Notice>
          )}
          {checked !== undefined && (
            <Result checked={checked} isCurrent={isCurrent} problems={problems} onShow={isCurrent ? show : undefined} />
          )}
        </div>
      </div>
      {checked?.response.users !== undefined && <People checked={checked} users={checked.response.users} />}
    </Page>
  );
}

/** People would be looked up in one environment, and shown of the other. */
function problemOfKey(key: string, environment: Environment): string | undefined {
  const other = environment === 'production' ? 'sk_dev_' : 'sk_prod_';
  return key.startsWith(other) ? `This key is not for ${environment}. Switch the environment above.` : undefined;
}

interface Problem {
  /** Where, for people; empty for the request as a whole. */
  readonly place: string;
  readonly message: string;
  readonly isRejection: boolean;
  readonly range: TextRange | null;
}

interface RejectedUser {
  readonly userIndex: number;
  readonly message: string;
}

/** What would be rejected, and what the tracking plan says against the rest. */
function problemsIn({ text, response }: Checked): Problem[] {
  const { body } = response.would_respond;
  const errors = (body['errors'] ?? []) as readonly RejectedUser[];
  const problems = errors.map(({ userIndex, message }): Problem => {
    const user = `users[${userIndex}]`;
    const path = adviceFor(message).path ?? /^([^\s:]+): /.exec(message)?.[1] ?? null;
    const range = rangeOf(text, path === null ? user : `${user}.${path}`);
    return { place: user, message, isRejection: true, range };
  });
  if (errors.length === 0 && typeof body['message'] === 'string') {
    const { message } = body as { message: string };
    const [, line, column] = /at line (\d+), column (\d+)/.exec(message) ?? [];
    const range = line === undefined ? rangeOf(text, 'users') : rangeAt(text, Number(line), Number(column));
    problems.push({ place: '', message, isRejection: true, range });
  }
  for (const { userIndex, violations } of response.users ?? []) {
    for (const { path, message, mode } of violations) {
      if (mode === 'enforce') continue;
      const user = `users[${userIndex}]`;
      problems.push({
        place: user,
        message: `${path} ${message} (tracking plan)`,
        isRejection: false,
        range: rangeOf(text, `${user}.${path}`),
      });
    }
  }
  return problems;
}

interface ResultProps {
  readonly checked: Checked;
  readonly isCurrent: boolean;
  readonly problems: readonly Problem[];
  readonly onShow: ((range: TextRange) => void) | undefined;
}

function Result({ checked: { response }, isCurrent, problems, onShow }: ResultProps): ReactNode {
  const { would_respond: would, pending_requests: pending = 0 } = response;
  const isAccepted = would.status === 202;
  return (
    <Card title="The server would respond">
      <p className="try-status">
        <Badge tone={isAccepted ? 'good' : 'bad'}>{would.status}</Badge> {summaryOf(would.body, isAccepted)}
      </p>
      {!isCurrent && <p className="muted">You have changed the request since. Check it again.</p>}
      {problems.length > 0 && (
        <ul className="words" aria-label="Problems">
          {problems.map(({ place, message, isRejection, range }) => (
            <li key={`${place} ${message}`}>
              <Badge tone={isRejection ? 'bad' : 'warn'}>{isRejection ? 'rejected' : 'violation'}</Badge>{' '}
              {place !== '' && <code>{place}</code>} <bdi>{message}</bdi>{' '}
              {range !== null && onShow !== undefined && (
                <Button kind="quiet" onClick={() => onShow(range)}>
                  Show
                </Button>
              )}
            </li>
          ))}
        </ul>
      )}
      {response.users === undefined && isAccepted && (
        <p className="muted">With a publishable key, only the validation is shown.</p>
      )}
      {pending > 0 && (
        <Notice tone="quiet">
          {formatNumber(pending)} {pending === 1 ? 'request is' : 'requests are'} accepted and not processed yet: they
          are not considered here.
        </Notice>
      )}
    </Card>
  );
}

function summaryOf(body: Readonly<Record<string, unknown>>, isAccepted: boolean): string {
  if (!isAccepted) return 'Nothing would be accepted.';
  const [accepted, rejected] = [Number(body['users_accepted']), Number(body['users_rejected'])];
  const words = `${formatNumber(accepted)} ${accepted === 1 ? 'user' : 'users'} accepted`;
  return rejected === 0 ? `${words}.` : `${words}, ${formatNumber(rejected)} rejected.`;
}

function People({ checked, users }: { checked: Checked; users: readonly PredictedUser[] }): ReactNode {
  const people = useMemo(() => peopleIn(users), [users]);
  const shown = people.slice(0, PEOPLE_SHOWN_MAX);
  const repeated = users.filter(({ duplicate_of: of }) => of !== null).length;
  const without = users.filter((user) => user.profile_id === null && user.status === 'accepted').length - repeated;
  return (
    <>
      {repeated > 0 && (
        <Notice tone="quiet" title="A duplicate">
          This Idempotency-Key was used with the same body before: what was stored then would not be stored again.
        </Notice>
      )}
      {without > 0 && (
        <Notice tone="quiet">
          {formatNumber(without)} {without === 1 ? 'user has' : 'users have'} no identifier that can be matched, or
          nothing new: no person is concerned.
        </Notice>
      )}
      {shown.map((person) => (
        <PredictedPersonCard key={person.id} person={person} checkedAt={checked.at} />
      ))}
      {shown.length < people.length && (
        <p className="muted">And {formatNumber(people.length - shown.length)} more people.</p>
      )}
    </>
  );
}
