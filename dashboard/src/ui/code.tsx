/**
 * Texts for machines, shown as text and nothing else: commands and snippets with a button to copy them, and JSON in a
 * readable form. `Json` can mark the place that a path such as `events[0].timestamp` names; when that place is
 * missing, it marks the nearest thing around it. Long values are cut after some lines until asked for.
 */

import { type ReactNode, useMemo, useState } from 'react';
import { Button } from './button.tsx';
import { CopyButton } from './copy-button.tsx';
import { isWithin, type JsonLine, jsonLines, jsonSource, markedPath } from './json-lines.ts';

const LINES_SHOWN_MAX = 400;

interface CodeProps {
  readonly text: string;
  readonly language?: 'json' | 'shell' | 'html' | 'js';
  readonly label?: string;
}

export function Code({ text, language = 'shell', label = 'Copy' }: CodeProps): ReactNode {
  return (
    <div className={`code code--${language}`}>
      <pre className="code__text">
        <code>{text}</code>
      </pre>
      <div className="code__copy">
        <CopyButton text={text} label={label} />
      </div>
    </div>
  );
}

interface JsonProps {
  readonly value: unknown;
  readonly mark?: string | undefined;
}

export function Json({ value, mark }: JsonProps): ReactNode {
  const [isWhole, setIsWhole] = useState(false);
  const lines = useMemo(() => jsonLines(value), [value]);
  const marked = useMemo(() => markedPath(lines, mark), [lines, mark]);
  const shown = isWhole ? lines : lines.slice(0, LINES_SHOWN_MAX);
  return (
    <div className="code code--json">
      <pre className="code__text">
        <code>
          {shown.map((line, index) => (
            // Lines have no key but their index, and are never reordered.
            // oxlint-disable-next-line react/no-array-index-key
            <JsonRow key={index} line={line} isMarked={marked !== null && isWithin(line.path, marked)} />
          ))}
        </code>
      </pre>
      {shown.length < lines.length && (
        <p className="code__more">
          <Button onClick={() => setIsWhole(true)}>Show all {lines.length} lines</Button>
        </p>
      )}
      <div className="code__copy">
        <CopyButton text={jsonSource(value)} />
      </div>
    </div>
  );
}

function JsonRow({ line, isMarked }: { line: JsonLine; isMarked: boolean }): ReactNode {
  const words = (
    <>
      {'  '.repeat(line.depth)}
      {line.name !== null && (
        <>
          <span className="json__name">{JSON.stringify(line.name)}</span>
          {': '}
        </>
      )}
      <span className={`json__${line.kind}`}>{line.text}</span>
      {line.isFollowed && ','}
      {'\n'}
    </>
  );
  return isMarked ? <mark className="json__marked">{words}</mark> : words;
}
