/**
 * Buttons. `primary` is for the one thing that a view is about, `danger` for what cannot be taken back. A busy button
 * keeps its words and its place, says that it is busy, and cannot be pressed twice.
 */

import type { ComponentProps, ReactNode } from 'react';

interface ButtonProps extends ComponentProps<'button'> {
  readonly kind?: 'primary' | 'plain' | 'danger' | 'quiet';
  readonly busy?: boolean;
}

export function Button({ kind = 'plain', busy = false, className, children, ...rest }: ButtonProps): ReactNode {
  const names = ['button', `button--${kind}`, busy ? 'button--busy' : '', className ?? ''];
  return (
    <button
      type="button"
      {...rest}
      className={names.filter((name) => name !== '').join(' ')}
      disabled={busy || rest.disabled === true}
      aria-busy={busy || undefined}
    >
      {children}
    </button>
  );
}
