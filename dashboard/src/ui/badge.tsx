/** One or two words about the state of a thing. The words say it; the colour only helps. */

import type { ReactNode } from 'react';

export type Tone = 'good' | 'warn' | 'bad' | 'quiet';

export function Badge({ tone, children }: { tone: Tone; children: ReactNode }): ReactNode {
  return <span className={`badge badge--${tone}`}>{children}</span>;
}
