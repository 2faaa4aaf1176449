/** A row of small bars, one per day: the shape of a volume at a glance, and its sum in words. */

import type { ReactNode } from 'react';
import { formatNumber } from '../time.tsx';

const BAR = 5;
const GAP = 2;
const HEIGHT = 22;

export function Sparkline({ values, days }: { values: readonly number[]; days: number }): ReactNode {
  const sum = values.reduce((total, value) => total + value, 0);
  const most = Math.max(1, ...values);
  const width = days * (BAR + GAP) - GAP;
  return (
    <span className="sparkline">
      <svg viewBox={`0 0 ${width} ${HEIGHT}`} width={width} height={HEIGHT} aria-hidden="true" focusable="false">
        {Array.from({ length: days }, (_, day) => {
          const value = values[day] ?? 0;
          const height = value === 0 ? 1 : Math.max(2, (HEIGHT * value) / most);
          return (
            <rect
              // Days have no names of their own.
              key={`day ${day}`}
              className={value === 0 ? 'sparkline__none' : undefined}
              x={day * (BAR + GAP)}
              y={HEIGHT - height}
              width={BAR}
              height={height}
            />
          );
        })}
      </svg>
      <span className="for-screen-readers">
        {formatNumber(sum)} {sum === 1 ? 'event' : 'events'}
      </span>
    </span>
  );
}
