/**
 * Fixing rejected users: one is edited as it was sent, and resubmitted, or its change is applied to all with the same
 * reason. Before that a preview says what would become of them; after it a bar shows how far the job is, and what is left.
 * The server checks everything again; what is shown here is what it says.
 */

import { type ReactNode, useId, useState } from 'react';
import { ApiError, send } from '../api.ts';
import { parseExactly } from '../exact-json.ts';
import { type PatchOperation, patchBetween } from '../json-patch.ts';
import { useEnvironment } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { Job, Rejection, Resubmitted, ResubmitPreview } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Json } from '../ui/code.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ErrorNotice, Notice } from '../ui/notice.tsx';
import { jsonSource } from '../ui/json-lines.ts';
import { JobProgress } from './jobs.tsx';
import { PredictedChanges } from './predicted-changes.tsx';

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
  /** Something was resubmitted: its job was made, or is done. */
  readonly onChange: () => void;
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

function FixSteps({
  rejection,
  filter,
  count,
  onClose,
  onChange,
}: FixDialogProps & { rejection: Rejection }): ReactNode {
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
    onChange();
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
    if (job === null) throw new ApiError('The server created no job.', 0, null);
    onChange();
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
      {step.kind === 'job' && (
        <>
          <JobProgress made={step.job} onEnd={onChange} />
          <div className="form-end">
            <Button kind="primary" onClick={onClose}>
              Close
            </Button>
          </div>
        </>
      )}
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
          {rejection.format === 'segment' ? 'Corrected message' : 'Corrected user'}
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
        {user === undefined && <p className="field__error">This is not valid JSON.</p>}
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
  to_string: 'convert',
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
              {operation.op === 'add' ? 'with the value' : 'to'} <code>{JSON.stringify(operation.value)}</code>
            </>
          )}
          {operation.op === 'to_string' && ' to a string, whatever number each has'}
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
  const isValid = users.filter(({ status }) => status === 'valid');
  // Those that do more than to store events first.
  const shown = [...isValid.filter(isUnusual), ...isValid.filter((user) => !isUnusual(user))].slice(0, SHOWN_USERS);
  return (
    <>
      <p>
        <strong>{formatNumber(valid)}</strong> of {formatNumber(checked)} {checked === 1 ? 'user' : 'users'} would be
        accepted{checked < matched && ` (the first of ${formatNumber(matched)})`}. Nothing is stored yet.
      </p>
      <Changes patch={patch} />
      {warnings.map((warning) => (
        <Notice key={warning} tone="warn" title="Are you sure?">
          {warning.charAt(0).toUpperCase() + warning.slice(1)}.
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
      {valid > 0 && <Effects preview={preview} />}
      {shown.map(({ id, user, prediction }) => (
        <details key={id} className="rejected-sample">
          <summary>
            What would happen to <code className="muted">users[{id.slice(id.lastIndexOf('.') + 1)}]</code>
          </summary>
          {prediction !== null && <PredictedChanges user={prediction} isAlone />}
          <p className="muted small">As it would be:</p>
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

function isUnusual({ prediction }: ResubmitPreview['users'][number]): boolean {
  if (prediction === null) return false;
  const { merges, refusals, violations, warnings, duplicate_events: duplicates } = prediction;
  return merges.length + refusals.length + violations.length + warnings.length + duplicates > 0;
}

const EFFECTS = [
  ['events', 'event would be stored', 'events would be stored'],
  ['duplicate_events', 'event is stored already, by $event_id', 'events are stored already, by $event_id'],
  ['new_profiles', 'person would be new', 'people would be new'],
  ['merges', 'merge of two profiles', 'merges of two profiles'],
  ['refusals', 'identifier would not be linked', 'identifiers would not be linked'],
  ['property_changes', 'property would change', 'properties would change'],
  ['violations', 'violation of the tracking plan', 'violations of the tracking plan'],
] as const;

function Effects({ preview: { effects, pending_requests: pending } }: { preview: ResubmitPreview }): ReactNode {
  return (
    <Notice tone="quiet" title="What they would do">
      <ul className="bullets" aria-label="What they would do">
        {EFFECTS.filter(([name]) => effects[name] > 0).map(([name, one, many]) => (
          <li key={name}>
            {formatNumber(effects[name])} {effects[name] === 1 ? one : many}
          </li>
        ))}
      </ul>
      {pending > 0 && (
        <p className="small">
          {formatNumber(pending)} {pending === 1 ? 'request is' : 'requests are'} not processed yet, and not considered.
        </p>
      )}
    </Notice>
  );
}
