/**
 * A password, hidden unless the person wants to see what they type. Works with password managers; the limits are the
 * server's, shown before they are broken.
 */

import { type ReactNode, type Ref, useState } from 'react';
import { TextField, type TextFieldProps } from './field.tsx';

const PASSWORD_CHARACTERS_MIN = 10;
const PASSWORD_CHARACTERS_MAX = 200;

interface PasswordFieldProps extends Omit<TextFieldProps, 'type'> {
  readonly ref?: Ref<HTMLInputElement>;
}

export function PasswordField({ ref, ...rest }: PasswordFieldProps): ReactNode {
  const [isShown, setIsShown] = useState(false);
  return (
    <TextField
      {...rest}
      ref={ref}
      type={isShown ? 'text' : 'password'}
      autoCapitalize="none"
      autoCorrect="off"
      spellCheck={false}
      beside={
        <button
          type="button"
          className="field__beside"
          aria-pressed={isShown}
          aria-label="Show password"
          onClick={() => setIsShown(!isShown)}
        >
          {isShown ? 'Hide' : 'Show'}
        </button>
      }
    />
  );
}

/** For a password that is being chosen. */
export function NewPasswordField(props: PasswordFieldProps): ReactNode {
  return (
    <PasswordField
      name="new-password"
      autoComplete="new-password"
      required
      minLength={PASSWORD_CHARACTERS_MIN}
      maxLength={PASSWORD_CHARACTERS_MAX}
      hint={`At least ${PASSWORD_CHARACTERS_MIN} characters. A few unrelated words do well.`}
      {...props}
    />
  );
}
