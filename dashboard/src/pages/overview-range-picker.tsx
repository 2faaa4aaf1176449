/**
 * The controls of the overview's time: which range, by which clock, and in words what is shown. All of it are links, so
 * that a view can be shared and gone back to. Times are typed and shown in the viewer's zone, and stand in the address in
 * UTC, so that a shared link means the same everywhere.
 */

import { type FormEvent, type ReactNode, useState } from 'react';
import {
  addressQuery,
  type Clock,
  DEFAULT_RANGE,
  NAMED_RANGES,
  type Range,
  type RangeText,
  rangeOf,
} from '../overview-range.ts';
import { Link, navigate, useEnvironment, viewPath } from '../router.tsx';
import { DAY_MS } from '../time-units.ts';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { TextField } from '../ui/field.tsx';

/** As the server keeps them. */
const MINUTES_KEPT_MS = 7 * DAY_MS;

interface PickerProps {
  readonly text: RangeText;
  readonly clock: Clock;
}

export function ClockSwitch({ text, clock }: PickerProps): ReactNode {
  const path = viewPath(useEnvironment(), '');
  const choices = [
    { value: 'event', label: 'Event time' },
    { value: 'receipt', label: 'Time of receipt' },
  ] as const;
  return (
    <nav className="switch" aria-label="Clock">
      {choices.map(({ value, label }) => (
        <Link
          key={value}
          className="switch__choice"
          to={path + addressQuery(text, value)}
          aria-current={value === clock ? 'true' : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

export function RangeSwitch({ text, clock, now }: PickerProps & { readonly now: number }): ReactNode {
  const path = viewPath(useEnvironment(), '');
  const current = text.range === '' ? DEFAULT_RANGE : text.range;
  const choices = [...NAMED_RANGES.map(({ name, label }) => ({ name, label })), { name: 'custom', label: 'Custom' }];
  // What is shown is where a custom range starts from.
  const shown = rangeOf(text, clock, now);
  const ends =
    'range' in shown ? { from: utcText(shown.range.from), to: utcText(shown.range.to) } : { from: '', to: '' };
  return (
    <nav className="switch" aria-label="Range">
      {choices.map(({ name, label }) => (
        <Link
          key={name}
          className="switch__choice"
          to={path + addressQuery({ range: name, ...ends }, clock)}
          aria-current={name === current ? 'true' : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

function utcText(time: number): string {
  return new Date(time).toISOString();
}

/** As fields of the browser want it: in the viewer's zone, without saying so; '' for what is not a time. */
function fieldText(text: string): string {
  const time = Date.parse(text);
  if (Number.isNaN(time)) return '';
  const at = new Date(time);
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = `${String(at.getFullYear()).padStart(4, '0')}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

export function CustomRange({ text, clock }: PickerProps): ReactNode {
  const path = viewPath(useEnvironment(), '');
  const [from, setFrom] = useState(fieldText(text.from));
  const [to, setTo] = useState(fieldText(text.to));
  const show = (event: FormEvent): void => {
    event.preventDefault();
    const ends = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
    navigate(path + addressQuery({ range: 'custom', ...ends }, clock));
  };
  return (
    <Card>
      <form className="custom-range" onSubmit={show}>
        <TextField label="From" type="datetime-local" value={from} onChange={(e) => setFrom(e.target.value)} required />
        <TextField label="To" type="datetime-local" value={to} onChange={(e) => setTo(e.target.value)} required />
        <Button kind="primary" type="submit">
          Show
        </Button>
      </form>
    </Card>
  );
}

const moment = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
});

/** What is shown: from when to when, in which zone, by which clock, and what that leaves out. */
export function RangeWords({ range, clock, now }: { range: Range; clock: Clock; now: number }): ReactNode {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const end = range.isMoving ? 'now' : moment.format(range.to);
  return (
    <p className="muted small">
      {moment.format(range.from)} to {end}, in your time zone ({timeZone}).{' '}
      {clock === 'event' ? (
        <>By event time: when things happened, for all events that are stored.</>
      ) : (
        <>By time of receipt: when requests arrived, whatever became of them since. {keptWords(range, now)}</>
      )}
    </p>
  );
}

function keptWords({ unit, from }: Range, now: number): string {
  if (unit === 'minute' || from >= now - MINUTES_KEPT_MS) return '';
  return 'Counts by minute are kept for 7 days; further back there are hours.';
}
