/**
 * A key that has just been made, in full, with what to paste to use it. Shown only once: the caller asks before it closes,
 * and lets go of the key then.
 */

import { type ReactNode, useEffect, useRef } from 'react';
import { useSession } from '../session.tsx';
import { curlLine, isOnThisMachineOnly, scriptTag } from '../snippets.ts';
import type { CreatedKey } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Code } from '../ui/code.tsx';
import { Notice } from '../ui/notice.tsx';

export function NewKeyNotice({ made, onClose }: { made: CreatedKey; onClose: () => void }): ReactNode {
  const { server } = useSession();
  const words = useRef<HTMLDivElement>(null);
  const { key, row } = made;
  const isSecret = row.kind === 'secret';
  // The button that had the focus is gone; and the key stands above it.
  useEffect(() => {
    words.current?.focus({ preventScroll: true });
    words.current?.closest('dialog')?.scrollTo(0, 0);
    words.current?.parentElement?.scrollTo(0, 0);
  }, []);
  return (
    <div className="form" ref={words} tabIndex={-1}>
      <Notice tone="warn" title="This is the only time it is shown">
        <p>
          {isSecret
            ? 'Keep it in a password manager or your deployment’s secrets.'
            : 'It is safe in web pages and apps: it can only send events.'}{' '}
          It cannot be shown again.
        </p>
      </Notice>
      <Code text={key} label="Copy key" />
      <p>
        {isSecret
          ? 'Send a first event from a terminal:'
          : 'Add this to a web page; its first visit is your first event:'}
      </p>
      {isSecret ? (
        <Code text={curlLine(server.url, key)} language="shell" />
      ) : (
        <Code text={scriptTag(server.url, key)} language="html" />
      )}
      {isOnThisMachineOnly(server.url) && (
        <p className="muted">
          The address above works on this machine only. For others, set <code>SLUICE_PUBLIC_URL</code> to where they
          reach the server.
        </p>
      )}
      <div className="form-end">
        <Button kind="primary" onClick={onClose}>
          I have saved it
        </Button>
      </div>
    </div>
  );
}
