/**
 * How much of a bound is used, as a bar. The figures stand beside it in words; the colour only helps. Shares that are
 * above `warnAbove` and `badAbove` are coloured so.
 */

/* Not <meter>: every browser draws those in its own colours. */
/* oxlint-disable jsx-a11y/prefer-tag-over-role */

import type { ReactNode } from 'react';

interface MeterProps {
  readonly label: string;
  readonly value: number;
  readonly max: number;
  /** Shares, 0 to 1. */
  readonly warnAbove: number;
  readonly badAbove: number;
}

export function Meter({ label, value, max, warnAbove, badAbove }: MeterProps): ReactNode {
  const share = max > 0 ? Math.min(Math.max(value / max, 0), 1) : 0;
  const percent = Math.round(100 * share);
  return (
    <div
      className={`meter meter--${meterTone(share, warnAbove, badAbove)}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
      aria-valuetext={`${percent} %`}
    >
      {share > 0 && <span className="meter__bar" style={{ width: `${100 * share}%` }} />}
    </div>
  );
}

function meterTone(share: number, warnAbove: number, badAbove: number): 'good' | 'warn' | 'bad' {
  if (share > badAbove) return 'bad';
  return share > warnAbove ? 'warn' : 'good';
}
