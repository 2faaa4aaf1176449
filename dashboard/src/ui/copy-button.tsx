/**
 * Copies a text and says that it did. Where the browser gives no clipboard (a page over plain HTTP on another host), it
 * goes through a hidden field; where that fails too, it says so, and the text can still be selected by hand.
 */

import { type ReactNode, useEffect, useRef, useState } from 'react';
import { Icon } from './icons.tsx';

const SAID_MS = 2_000;

interface CopyButtonProps {
  readonly text: string;
  readonly label?: string;
}

export function CopyButton({ text, label = 'Copy' }: CopyButtonProps): ReactNode {
  const [outcome, setOutcome] = useState<'copied' | 'failed' | null>(null);
  const button = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (outcome === null) return undefined;
    const timer = setTimeout(() => setOutcome(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [outcome]);

  const copy = async (): Promise<void> => {
    setOutcome((await copyText(text, button.current)) ? 'copied' : 'failed');
  };

  return (
    <>
      <button ref={button} type="button" className="button button--plain button--copy" onClick={() => void copy()}>
        <Icon name={outcome === 'copied' ? 'check' : 'copy'} />
        {outcome === 'copied' ? 'Copied' : label}
      </button>
      <output className="for-screen-readers">
        {outcome === 'copied' && 'Copied to the clipboard'}
        {outcome === 'failed' && 'Could not copy'}
      </output>
      {outcome === 'failed' && (
        <span className="copy-failed">Could not copy: select the text and copy it by hand.</span>
      )}
    </>
  );
}

async function copyText(text: string, beside: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyThroughField(text, beside);
  }
}

/** Beside the button, because a modal dialog lets nothing outside of it have the focus. */
function copyThroughField(text: string, beside: HTMLElement | null): boolean {
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'for-screen-readers';
  field.setAttribute('aria-hidden', 'true');
  (beside?.parentElement ?? document.body).append(field);
  field.select();
  try {
    return document.execCommand('copy');
  } catch {
    return false;
  } finally {
    field.remove();
    beside?.focus();
  }
}
