/**
 * A plain text editor for a request, with mistakes marked where they are: the marks are drawn on a copy of the text
 * behind the field, which scrolls with it. What is typed is text and nothing else.
 */

import { type ReactNode, type RefObject, useId, useRef } from 'react';
import type { TextRange } from '../json-ranges.ts';
import { markedParts } from '../mark-text.ts';

interface RequestEditorProps {
  readonly text: string;
  readonly marks: readonly TextRange[];
  readonly field: RefObject<HTMLTextAreaElement | null>;
  readonly onChange: (text: string) => void;
  readonly onSubmit: () => void;
}

/** Lines and characters that stay visible before what is selected. */
const CONTEXT = { lines: 4, characters: 20 } as const;
/** Of the width of a character to its height, in any monospaced font. */
const CHARACTER_WIDTH = 0.6;

/** Selects a part and scrolls to it, which browsers do not do by themselves. */
export function select(field: HTMLTextAreaElement, { start, end }: TextRange): void {
  const before = field.value.slice(0, start);
  const line = before.split('\n').length - 1;
  const column = before.length - before.lastIndexOf('\n') - 1;
  const { lineHeight, fontSize } = getComputedStyle(field);
  field.focus();
  field.setSelectionRange(start, end);
  field.scrollTo({
    top: (line - CONTEXT.lines) * Number.parseFloat(lineHeight),
    left: (column - CONTEXT.characters) * Number.parseFloat(fontSize) * CHARACTER_WIDTH,
  });
}

export function RequestEditor({ text, marks, field, onChange, onSubmit }: RequestEditorProps): ReactNode {
  const id = useId();
  const behind = useRef<HTMLPreElement>(null);
  return (
    <div className="editor">
      <label className="field__label" htmlFor={id}>
        Request body
      </label>
      <div className="editor__frame">
        <pre className="editor__marks" aria-hidden="true" ref={behind}>
          {markedParts(text, marks).map(({ part, start, isMarked }) =>
            isMarked ? <mark key={start}>{part}</mark> : <span key={start}>{part}</span>,
          )}
          {'\n'}
        </pre>
        <textarea
          id={id}
          ref={field}
          className="editor__field"
          value={text}
          spellCheck={false}
          autoComplete="off"
          wrap="off"
          onChange={(event) => onChange(event.target.value)}
          onScroll={(event) => {
            const { scrollTop, scrollLeft } = event.currentTarget;
            behind.current?.scrollTo({ top: scrollTop, left: scrollLeft });
          }}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) onSubmit();
          }}
        />
      </div>
    </div>
  );
}
