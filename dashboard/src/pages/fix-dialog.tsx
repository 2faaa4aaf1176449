/**
 * Fixing rejected users: one is edited as it was sent, and resubmitted, or its change is applied to all with the same
 * reason. Before that a preview says what would become of them; after it a bar shows how far the job is, and what is left.
 * The server checks everything again; what is shown here is what it says.
 */

import { type ReactNode, useEffect, useId, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { parseExactly } from '../exact-json.ts';
import { type PatchOperation, patchBetween } from '../json-patch.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { Job, Rejection, Resubmitted, ResubmitPreview } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Json } from '../ui/code.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { jsonSource } from '../ui/json-lines.ts';
import { useData } from '../use-data.ts';

const JOB_MS = 500;
const ROWS_MIN = 8;
const ROWS_MAX = 24;
const SHOWN_USERS = 3;

/** Which ones "all" are. */
export interface FixFilter {
  readonly reason: string;
  readonly from?: string;
}

export interface FixDialogProps {
  readonly rejection: Rejection | undefined;
  readonly filter: FixFilter;
  /** How many have the reason and are not fixed yet. */
  readonly count: number;
  readonly onClose: () => void;
  /** Something was resubmitted. */
  readonly onDone: () => void;
}

export function FixDialog(props: FixDialogProps): ReactNode {
  const { rejection, onClose } = props;
  return (
    <Dialog title="Fix and resubmit" isOpen={rejection !== undefined} onClose={onClose}>
      {rejection !== undefined && <FixSteps {...props} rejection={rejection} />}
    </Dialog>
  );
}

type Step =
  | { readonly kind: 'edit' }
  | { readonly kind: 'preview'; readonly patch: readonly PatchOperation[]; readonly preview: ResubmitPreview }
  | { readonly kind: 'job'; readonly job: Job };

function FixSteps({ rejection, filter, count, onClose, onDone }: FixDialogProps & { rejection: Rejection }): ReactNode {
  const environment = useEnvironment();
  const [text, setText] = useState(() => jsonSource(rejection.payload));
  const [step, setStep] = useState<Step>({ kind: 'edit' });
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const attempt = async (work: () => Promise<Step>): Promise<void> => {
    setIsBusy(true);
    setError(undefined);
    try {
      setStep(await work());
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError('That did not work.', 0, null));
    }
    setIsBusy(false);
  };
  const resubmitOne = async (user: unknown): Promise<Step> => {
    const job = await send<Job>(environment, 'POST', `/rejections/${rejection.id}/resubmit`, { user });
    return { kind: 'job', job };
  };
  const preview = async (patch: readonly PatchOperation[]): Promise<Step> => {
    const response = await send<Resubmitted>(environment, 'POST', '/rejections/resubmit', {
      filter,
      patch,
      dry_run: true,
    });
    if (response.preview === null) throw new ApiError('The server sent no preview.', 0, null);
    return { kind: 'preview', patch, preview: response.preview };
  };
  const resubmitAll = async (patch: readonly PatchOperation[]): Promise<Step> => {
    const { job } = await send<Resubmitted>(environment, 'POST', '/rejections/resubmit', { filter, patch });
    if (job === null) throw new ApiError('The server made no job.', 0, null);
    return { kind: 'job', job };
  };
  return (
    <div className="stack fix">
      {step.kind === 'edit' && (
        <Editor
          rejection={rejection}
          text={text}
          onText={setText}
          count={count}
          isBusy={isBusy}
          onOne={(user) => void attempt(() => resubmitOne(user))}
          onAll={(patch) => void attempt(() => preview(patch))}
        />
      )}
      {step.kind === 'preview' && (
        <Preview
          {...step}
          isBusy={isBusy}
          onBack={() => setStep({ kind: 'edit' })}
          onSend={() => void attempt(() => resubmitAll(step.patch))}
        />
      )}
      {step.kind === 'job' && <Progress made={step.job} onClose={onClose} onDone={onDone} />}
      {error !== undefined && <ErrorNotice error={error} />}
    </div>
  );
}

interface EditorProps {
  readonly rejection: Rejection;
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly count: number;
  readonly isBusy: boolean;
  readonly onOne: (user: unknown) => void;
  readonly onAll: (patch: readonly PatchOperation[]) => void;
}

function Editor({ rejection, text, onText, count, isBusy, onOne, onAll }: EditorProps): ReactNode {
  const id = useId();
  const user = parsed(text);
  const patch = user === undefined ? [] : patchBetween(rejection.payload, user);
  const isSame = patch.length === 0;
  const rows = Math.min(ROWS_MAX, Math.max(ROWS_MIN, text.split('\n').length + 1));
  return (
    <>
      <p>
        Rejected: <bdi className="words__message">{rejection.message}</bdi>
      </p>
      <div className="field">
        <label className="field__label" htmlFor={id}>
          {rejection.format === 'segment' ? 'The message' : 'The user'}, to be corrected
        </label>
        <textarea
          id={id}
          className="field__input fix__text"
          spellCheck={false}
          rows={rows}
          value={text}
          aria-invalid={user === undefined ? true : undefined}
          onChange={(event) => onText(event.target.value)}
        />
        {user === undefined && <p className="field__error">This is not JSON yet.</p>}
      </div>
      {!isSame && <Changes patch={patch} />}
      <div className="form-end">
        <Button disabled={isSame || user === undefined} busy={isBusy} onClick={() => onOne(user)}>
          Resubmit this user
        </Button>
        {count > 1 && (
          <Button kind="primary" disabled={isSame || user === undefined} busy={isBusy} onClick={() => onAll(patch)}>
            Apply to all {formatNumber(count)}, preview
          </Button>
        )}
      </div>
    </>
  );
}

/** Undefined for a text that is not JSON. */
function parsed(text: string): unknown {
  try {
    return parseExactly(text);
  } catch {
    return undefined;
  }
}

const OPERATION_WORDS: Readonly<Record<string, string>> = {
  add: 'add',
  remove: 'remove',
  replace: 'set',
  move: 'move',
  copy: 'copy',
  to_string: 'make a text of',
};

function Changes({ patch }: { patch: readonly PatchOperation[] }): ReactNode {
  return (
    <ul className="bullets" aria-label="What you changed">
      {patch.map((operation) => (
        <li key={`${operation.op} ${operation.path}`}>
          {OPERATION_WORDS[operation.op] ?? operation.op} <code>{operation.path}</code>
          {operation.value !== undefined && (
            <>
              {' '}
              to <code>{JSON.stringify(operation.value)}</code>
            </>
          )}
          {operation.op === 'to_string' && ', whatever number each has'}
        </li>
      ))}
    </ul>
  );
}

interface PreviewProps {
  readonly patch: readonly PatchOperation[];
  readonly preview: ResubmitPreview;
  readonly isBusy: boolean;
  readonly onBack: () => void;
  readonly onSend: () => void;
}

function Preview({ patch, preview, isBusy, onBack, onSend }: PreviewProps): ReactNode {
  const { matched, checked, valid, still_rejected: still, cut, reasons, warnings, users } = preview;
  const shown = users.filter(({ status }) => status === 'valid').slice(0, SHOWN_USERS);
  return (
    <>
      <p>
        <strong>{formatNumber(valid)}</strong> of {formatNumber(checked)} {checked === 1 ? 'user' : 'users'} would be
        accepted{checked < matched && ` (the first of ${formatNumber(matched)})`}. Nothing is stored yet.
      </p>
      <Changes patch={patch} />
      {warnings.map((warning) => (
        <Notice key={warning} tone="warn" title="Are you sure?">
          {warning}.
        </Notice>
      ))}
      {still + cut > 0 && (
        <Notice tone="quiet" title={`${formatNumber(still + cut)} would stay rejected`}>
          <ul className="bullets">
            {reasons.map(({ message, users: count }) => (
              <li key={message}>
                {formatNumber(count)}: <bdi>{message}</bdi>
              </li>
            ))}
            {cut > 0 && <li>{formatNumber(cut)}: too large to have been kept whole, so they cannot be changed here</li>}
          </ul>
        </Notice>
      )}
      {shown.map(({ id, user }) => (
        <details key={id} className="rejected-sample">
          <summary>
            As it would be: <code className="muted">users[{id.slice(id.lastIndexOf('.') + 1)}]</code>
          </summary>
          <Json value={user} />
        </details>
      ))}
      <div className="form-end">
        <Button onClick={onBack}>Back</Button>
        <Button kind="primary" disabled={valid === 0} busy={isBusy} onClick={onSend}>
          Resubmit {checked < matched ? 'all that are valid' : formatNumber(valid)}
        </Button>
      </div>
    </>
  );
}

function Progress({ made, onClose, onDone }: { made: Job; onClose: () => void; onDone: () => void }): ReactNode {
  const environment = useEnvironment();
  const [isDone, setIsDone] = useState(made.status !== 'running');
  const { data = made, error } = useData<Job>(`/jobs/${made.id}`, isDone ? {} : { everyMs: JOB_MS });
  const seen = data.matched - data.left;
  const hasEnded = data.status !== 'running';
  useEffect(() => {
    if (!hasEnded) return;
    setIsDone(true);
    onDone();
    // Once, when it ends.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [hasEnded]);
  const left = data.still_rejected + data.cut + data.failed;
  return (
    <>
      {hasEnded ? (
        <Notice tone={left === 0 ? 'good' : 'warn'} title={<output>{outcomeWords(data)}</output>}>
          {left > 0 && <p>{formatNumber(left)} stayed rejected:</p>}
          {data.problems.length > 0 && (
            <ul className="bullets">
              {data.problems.slice(0, SHOWN_USERS).map(({ id, message }) => (
                <li key={id}>
                  <bdi>{message}</bdi>
                </li>
              ))}
            </ul>
          )}
          {data.already > 0 && <p>Resubmitted by someone else meanwhile: {formatNumber(data.already)}.</p>}
        </Notice>
      ) : (
        <p>
          <label className="fix__progress">
            {formatNumber(seen)} of {formatNumber(data.matched)}
            <progress max={Math.max(1, data.matched)} value={seen} />
          </label>
        </p>
      )}
      {error !== undefined && data === made && <ErrorNotice error={error} />}
      {!hasEnded && seen === 0 && <Loading what="the job" />}
      <p className="small">
        In the <Link to={viewPath(environment, 'audit')}>audit</Link> as <code>{data.id}</code>.
        {!hasEnded && ' It goes on if you close this.'}
      </p>
      <div className="form-end">
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </>
  );
}

function outcomeWords({ resubmitted }: Job): string {
  if (resubmitted === 0) return 'No user was accepted.';
  return resubmitted === 1
    ? 'Accepted: 1 user is stored now.'
    : `Accepted: ${formatNumber(resubmitted)} users are stored now.`;
}
