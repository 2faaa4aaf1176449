/**
 * Tabs by the pattern of the ARIA authoring practices: one stop for the Tab key, arrows, Home and End go from tab to
 * tab and show it. Only the panel of the selected tab is in the page.
 */

import { type KeyboardEvent, type ReactNode, useId, useRef } from 'react';

interface Tab<Name extends string> {
  readonly name: Name;
  readonly label: string;
}

interface TabsProps<Name extends string> {
  /** Of all of them, for those who cannot see them. */
  readonly label: string;
  readonly tabs: readonly Tab<Name>[];
  readonly selected: Name;
  readonly onSelect: (name: Name) => void;
  /** The panel of the selected one. */
  readonly children: ReactNode;
}

export function Tabs<Name extends string>({ label, tabs, selected, onSelect, children }: TabsProps<Name>): ReactNode {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const idOf = (name: string): string => `${id}-${name}`;
  const onKeyDown = (event: KeyboardEvent): void => {
    const index = tabs.findIndex(({ name }) => name === selected);
    const next = nextIndex(event.key, index, tabs.length);
    const tab = next === undefined ? undefined : tabs[next];
    if (next === undefined || tab === undefined) return;
    event.preventDefault();
    onSelect(tab.name);
    list.current?.querySelectorAll<HTMLElement>('[role="tab"]')[next]?.focus();
  };
  return (
    <div className="tabbed">
      <div className="switch" role="tablist" aria-label={label} ref={list}>
        {tabs.map(({ name, label: words }) => (
          <button
            key={name}
            type="button"
            role="tab"
            className="switch__choice"
            id={idOf(name)}
            aria-selected={name === selected}
            aria-controls={`${id}-panel`}
            tabIndex={name === selected ? 0 : -1}
            onClick={() => onSelect(name)}
            onKeyDown={onKeyDown}
          >
            {words}
          </button>
        ))}
      </div>
      <div className="tabbed__panel" role="tabpanel" id={`${id}-panel`} aria-labelledby={idOf(selected)}>
        {children}
      </div>
    </div>
  );
}

function nextIndex(key: string, index: number, count: number): number | undefined {
  switch (key) {
    case 'ArrowRight':
      return (index + 1) % count;
    case 'ArrowLeft':
      return (index + count - 1) % count;
    case 'Home':
      return 0;
    case 'End':
      return count - 1;
    default:
      return undefined;
  }
}
