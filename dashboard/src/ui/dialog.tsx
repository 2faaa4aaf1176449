/**
 * A modal dialog: the browser's own, which keeps the focus inside, closes with Escape and gives the focus back. What is
 * in it exists only while it is open, so forms start fresh every time. A dialog that shows what can never be shown again
 * asks before it closes, whichever way: Escape, the button in its head, or the back gesture of a phone.
 */

import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { Button } from './button.tsx';
import { Icon } from './icons.tsx';
import { Notice } from './notice.tsx';

interface CloseQuestion {
  readonly title: string;
  /** What to press to close all the same. */
  readonly close: string;
}

interface DialogProps {
  readonly title: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  /** Asked before it closes other than by a button of its content. */
  readonly closeQuestion?: CloseQuestion | undefined;
  readonly children: ReactNode;
}

export function Dialog({ title, isOpen, onClose, closeQuestion, children }: DialogProps): ReactNode {
  const element = useRef<HTMLDialogElement>(null);
  const [isAsking, setIsAsking] = useState(false);
  const id = useId();
  if (isAsking && (!isOpen || closeQuestion === undefined)) setIsAsking(false);

  useEffect(() => {
    const dialog = element.current;
    if (dialog === null) return;
    if (isOpen && !dialog.open) {
      dialog.showModal();
      // By default it would start at the button that closes it.
      dialog.querySelector<HTMLElement>('.dialog__body :is(input, select, textarea, button):enabled')?.focus();
    }
    if (!isOpen && dialog.open) dialog.close();
  }, [isOpen]);

  const mayClose = (): void => {
    if (closeQuestion === undefined) onClose();
    else setIsAsking(true);
  };
  // Before the browser sees it: a second Escape would close the dialog whatever we say to its `cancel`.
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || closeQuestion === undefined) return;
    event.preventDefault();
    setIsAsking(!isAsking);
  };
  return (
    <dialog
      ref={element}
      className="dialog"
      aria-labelledby={id}
      onKeyDown={onKeyDown}
      onCancel={(event) => {
        if (event.target !== element.current) return;
        event.preventDefault();
        mayClose();
      }}
      // Closed by the browser whatever we said: then it is closed for the page too, or opened again to ask.
      onClose={() => {
        if (!isOpen) return;
        if (closeQuestion !== undefined) element.current?.showModal();
        mayClose();
      }}
    >
      {isOpen && (
        <>
          <header className="dialog__head">
            <h2 className="dialog__title" id={id}>
              {title}
            </h2>
            <button type="button" className="icon-button" aria-label="Close" onClick={mayClose}>
              <Icon name="close" />
            </button>
          </header>
          {isAsking && closeQuestion !== undefined && (
            <Question {...closeQuestion} onKeep={() => setIsAsking(false)} onClose={onClose} />
          )}
          <div className="dialog__body">{children}</div>
        </>
      )}
    </dialog>
  );
}

function Question(props: CloseQuestion & { onKeep: () => void; onClose: () => void }): ReactNode {
  const { title, close, onKeep, onClose } = props;
  const keep = useRef<HTMLDivElement>(null);
  useEffect(() => keep.current?.querySelector('button')?.focus(), []);
  return (
    <div className="dialog__question" ref={keep}>
      <Notice tone="bad" title={title}>
        <p className="row">
          <Button onClick={onKeep}>Keep it open</Button>
          <Button kind="danger" onClick={onClose}>
            {close}
          </Button>
        </p>
      </Notice>
    </div>
  );
}
