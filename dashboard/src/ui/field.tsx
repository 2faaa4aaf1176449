/**
 * Fields of forms. Each has a visible label, an optional hint, and its error beside it, both tied to the field for
 * screen readers. What is wrong is said in words, not by colour alone.
 */

import { type InputHTMLAttributes, type ReactNode, type Ref, type SelectHTMLAttributes, useId } from 'react';

interface Described {
  readonly label: ReactNode;
  readonly hint?: ReactNode;
  readonly error?: string | undefined;
}

export interface TextFieldProps extends Described, InputHTMLAttributes<HTMLInputElement> {
  readonly ref?: Ref<HTMLInputElement> | undefined;
  /** Something small inside of the field, at its end. */
  readonly beside?: ReactNode;
}

export function TextField({ label, hint, error, id, className, beside, ...rest }: TextFieldProps): ReactNode {
  const ownId = useId();
  const inputId = id ?? ownId;
  return (
    <Field id={inputId} label={label} hint={hint} error={error} className={className}>
      <input
        type="text"
        {...rest}
        id={inputId}
        className="field__input"
        aria-invalid={error === undefined ? undefined : true}
        aria-describedby={describedBy(inputId, hint, error)}
      />
      {beside}
    </Field>
  );
}

export interface SelectOption {
  readonly value: string;
  readonly label: string;
}

interface SelectFieldProps extends Described, SelectHTMLAttributes<HTMLSelectElement> {
  readonly options: readonly SelectOption[];
}

export function SelectField({ label, hint, error, id, className, options, ...rest }: SelectFieldProps): ReactNode {
  const ownId = useId();
  const selectId = id ?? ownId;
  return (
    <Field id={selectId} label={label} hint={hint} error={error} className={className}>
      <select
        {...rest}
        id={selectId}
        className="field__input field__input--select"
        aria-invalid={error === undefined ? undefined : true}
        aria-describedby={describedBy(selectId, hint, error)}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </Field>
  );
}

/** For pages that are one form. Not on a phone, where the keyboard would cover half of it. */
export function focusFirst(input: HTMLInputElement | null): void {
  if (matchMedia('(hover: hover)').matches) input?.focus();
}

interface FieldProps extends Described {
  readonly id: string;
  readonly className: string | undefined;
  readonly children: ReactNode;
}

function Field({ id, label, hint, error, className, children }: FieldProps): ReactNode {
  return (
    <div className={className === undefined ? 'field' : `field ${className}`}>
      <label className="field__label" htmlFor={id}>
        {label}
      </label>
      <div className="field__frame">{children}</div>
      {hint !== undefined && (
        <p className="field__hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error !== undefined && (
        <p className="field__error" id={`${id}-error`} role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

function describedBy(id: string, hint: ReactNode, error: string | undefined): string | undefined {
  const ids = [hint === undefined ? '' : `${id}-hint`, error === undefined ? '' : `${id}-error`];
  const text = ids.filter((each) => each !== '').join(' ');
  return text === '' ? undefined : text;
}
