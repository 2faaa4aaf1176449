/**
 * What a view says when there is no content to show, or something to know about it: notices, errors with a way to try
 * again, and loading. Loading is silent for a moment, because most responses arrive before it would be read.
 */

import { type ReactNode, useEffect, useState } from 'react';
import type { ApiError } from '../api.ts';
import type { Tone } from './badge.tsx';
import { Button } from './button.tsx';
import { CopyButton } from './copy-button.tsx';
import { Icon, type IconName } from './icons.tsx';

const ICONS: Readonly<Record<Tone, IconName>> = {
  good: 'success',
  warn: 'warning',
  bad: 'warning',
  quiet: 'information',
};

interface NoticeProps {
  readonly tone: Tone;
  readonly title?: ReactNode;
  readonly children?: ReactNode;
}

export function Notice({ tone, title, children }: NoticeProps): ReactNode {
  return (
    <div className={`notice notice--${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      <Icon name={ICONS[tone]} />
      <div className="notice__words">
        {title !== undefined && <p className="notice__title">{title}</p>}
        {children}
      </div>
    </div>
  );
}

interface ErrorNoticeProps {
  readonly error: ApiError | Error;
  readonly onRetry?: () => void;
}

export function ErrorNotice({ error, onRetry }: ErrorNoticeProps): ReactNode {
  const traceId = 'traceId' in error ? error.traceId : null;
  return (
    <Notice tone="bad" title={error.message}>
      {traceId !== null && (
        <p className="notice__trace">
          Trace <code>{traceId}</code> <CopyButton text={traceId} label="Copy trace" />
        </p>
      )}
      {onRetry !== undefined && (
        <p>
          <Button onClick={onRetry}>Try again</Button>
        </p>
      )}
    </Notice>
  );
}

const SILENT_MS = 200;

export function Loading({ what }: { what: string }): ReactNode {
  const [isSilent, setIsSilent] = useState(true);
  useEffect(() => {
    const timer = setTimeout(() => setIsSilent(false), SILENT_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <output className="loading">
      {!isSilent && (
        <>
          <span className="loading__mark" aria-hidden="true" />
          Loading {what} …
        </>
      )}
    </output>
  );
}
