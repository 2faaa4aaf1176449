/**
 * Catches what a view throws while it is drawn, so that the rest of the page goes on. Most often it is a view that
 * cannot be loaded because the server was updated meanwhile: loading the page again mends that.
 */

import { Component, type ReactNode } from 'react';
import { Button } from './ui/button.tsx';
import { Notice } from './ui/notice.tsx';

interface Props {
  readonly children: ReactNode;
  /** It stands alone, with no shell around it. */
  readonly isWhole?: boolean;
}

interface State {
  readonly error: Error | null;
}

export class ErrorBoundary extends Component<Props, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(thrown: unknown): State {
    return { error: thrown instanceof Error ? thrown : new Error(String(thrown)) };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    const words = (
      <Notice tone="bad" title="This view cannot be shown">
        <p>
          Either the server was updated since the page was loaded, or it is a mistake of ours. Loading the page again
          mends the first.
        </p>
        <p className="mono">{this.state.error.message}</p>
        <p>
          <Button onClick={() => location.reload()}>Load the page again</Button>
        </p>
      </Notice>
    );
    return this.props.isWhole === true ? <main className="gate">{words}</main> : words;
  }
}
