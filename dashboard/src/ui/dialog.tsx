/**
 * A modal dialog: the browser's own, which keeps the focus inside, closes with Escape and gives the focus back. What is
 * in it exists only while it is open, so forms start fresh every time.
 */

import { type ReactNode, useEffect, useId, useRef } from 'react';
import { Icon } from './icons.tsx';

export interface DialogProps {
  readonly title: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

export function Dialog({ title, isOpen, onClose, children }: DialogProps): ReactNode {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();

  useEffect(() => {
    const dialog = element.current;
    if (dialog === null) return;
    if (isOpen && !dialog.open) {
      dialog.showModal();
      // Of its own it would start at the button that closes it.
      dialog.querySelector<HTMLElement>('.dialog__body :is(input, select, textarea, button):enabled')?.focus();
    }
    if (!isOpen && dialog.open) dialog.close();
  }, [isOpen]);

  return (
    <dialog
      ref={element}
      className="dialog"
      aria-labelledby={id}
      onCancel={(event) => {
        if (event.target !== element.current) return;
        event.preventDefault();
        onClose();
      }}
      // A second Escape closes it whatever we say: then it is closed for the page too.
      onClose={() => {
        if (isOpen) onClose();
      }}
    >
      {isOpen && (
        <>
          <header className="dialog__head">
            <h2 className="dialog__title" id={id}>
              {title}
            </h2>
            <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
              <Icon name="close" />
            </button>
          </header>
          <div className="dialog__body">{children}</div>
        </>
      )}
    </dialog>
  );
}
