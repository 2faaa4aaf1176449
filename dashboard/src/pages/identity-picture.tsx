/**
 * The identity graph as a picture. Everything that a request did can be hovered, focused and clicked, and is one stop
 * for the tab key together: the arrow keys continue from there. Where things stand is decided by `graph-layout.ts`;
 * which of them is looked at or marked, by the view around. Text is always text.
 */

import { type KeyboardEvent, type ReactNode, useRef } from 'react';
import type {
  GraphLayout,
  PlacedFold,
  PlacedIdentifier,
  PlacedMerge,
  PlacedNode,
  PlacedRefusal,
} from '../graph-layout.ts';
import { cutMiddle, REFUSAL_WORDS, shortId } from '../identity-names.ts';
import { formatNumber, formatTime } from '../time.tsx';
import { type NodeNames, nodeWords, Sign } from './identifier-icon.tsx';

/** As many characters of the monospaced font as there is room for. */
const IDENTIFIER_CHARACTERS_MAX = 22;
const LABEL_CHARACTERS_MAX = 17;

interface PictureProps {
  readonly layout: GraphLayout;
  readonly names: NodeNames;
  /** What is looked at, by name; null for nothing. */
  readonly looked: string | null;
  /** What was clicked, and stays; '' for nothing. */
  readonly picked: string;
  /** What is drawn strongly: what is looked at and what it is about, or a chain. Empty: all is drawn the same. */
  readonly marked: ReadonlySet<string>;
  readonly onLook: (key: string | null) => void;
  readonly onPick: (key: string) => void;
  readonly onUnfold: () => void;
}

export function IdentityPicture(props: PictureProps): ReactNode {
  const { layout, marked, looked } = props;
  const picture = useRef<SVGSVGElement>(null);
  const { width, height, frame } = layout;
  const isAlone = layout.nodes.length + layout.hidden.nodes === 1;
  const keys = [...layout.identifiers, ...layout.merges, ...layout.refusals].map(({ key }) => key);
  const stop = looked !== null && keys.includes(looked) ? looked : keys[0];
  const move = (event: KeyboardEvent): void => {
    const at = keys.indexOf(event.target instanceof Element ? (event.target.getAttribute('data-key') ?? '') : '');
    const next = nextPlace(event.key, at, keys.length);
    const key = keys[next];
    if (at === -1 || key === undefined) return;
    event.preventDefault();
    picture.current?.querySelector<SVGGElement>(`[data-key="${CSS.escape(key)}"]`)?.focus();
  };
  const itemOf = (key: string): ItemProps => ({ ...props, id: key, isStop: key === stop, onMove: move });
  return (
    <svg
      ref={picture}
      className={marked.size > 0 ? 'graph graph--marked' : 'graph'}
      viewBox={`0 0 ${width} ${height}`}
      width={width}
      height={height}
      aria-label="Identity graph. Use the arrow keys to go through what each request did."
    >
      <rect className="graph__frame" {...frame} rx="14" />
      <text className="graph__title" x={6} y={30}>
        Identifiers
      </text>
      <text className="graph__title" x={frame.x + 32} y={30}>
        {titleOf(layout)}
      </text>
      {layout.folds.map((fold) => (
        <Fold key={fold.nodeId} fold={fold} onUnfold={props.onUnfold} />
      ))}
      {layout.merges.map(({ key, path }) =>
        // Whole, because it may share its line with others that are drawn over it.
        marked.has(key) ? <path key={key} className="graph__over" d={path} /> : null,
      )}
      {layout.merges.map((placed) => (
        <MergeItem key={placed.key} placed={placed} {...itemOf(placed.key)} />
      ))}
      {layout.identifiers.map((placed) => (
        <LinkItem key={placed.key} placed={placed} {...itemOf(placed.key)} />
      ))}
      {layout.nodes.map((placed) => (
        <NodeCard key={placed.node.id} {...placed} isMarked={marked.has(placed.node.id)} isAlone={isAlone} />
      ))}
      {layout.hiddenNodes !== null && (
        <text className="graph__more" x={layout.hiddenNodes.x} y={layout.hiddenNodes.y + 22}>
          and {formatNumber(layout.hidden.nodes)} more merged profiles, with{' '}
          {formatNumber(layout.hidden.identifiersOfNodes)} identifiers
        </text>
      )}
      {layout.refusals.length > 0 && (
        <text className="graph__title" x={6} y={layout.refusalsTitleY}>
          Not linked
        </text>
      )}
      {layout.refusals.map((placed) => (
        <RefusalItem key={placed.key} placed={placed} {...itemOf(placed.key)} />
      ))}
    </svg>
  );
}

function titleOf({ nodes, hidden }: GraphLayout): string {
  const count = nodes.length + hidden.nodes;
  return count === 1 ? 'One person' : `One person, merged from ${formatNumber(count)} profiles`;
}

function nextPlace(key: string, at: number, count: number): number {
  if (key === 'ArrowDown' || key === 'ArrowRight') return Math.min(at + 1, count - 1);
  if (key === 'ArrowUp' || key === 'ArrowLeft') return Math.max(at - 1, 0);
  if (key === 'Home') return 0;
  return key === 'End' ? count - 1 : -1;
}

interface ItemProps extends Omit<PictureProps, 'layout' | 'onUnfold'> {
  readonly id: string;
  readonly isStop: boolean;
  readonly onMove: (event: KeyboardEvent) => void;
}

interface GraphItemProps extends ItemProps {
  readonly name: string;
  readonly words: string;
  readonly children: ReactNode;
}

function GraphItem({
  id,
  isStop,
  picked,
  marked,
  onLook,
  onPick,
  onMove,
  name,
  words,
  children,
}: GraphItemProps): ReactNode {
  const names = ['graph__item', `graph__item--${name}`, marked.has(id) ? 'graph__item--marked' : ''];
  return (
    <g
      // Pictures have no buttons.
      // oxlint-disable-next-line jsx-a11y/prefer-tag-over-role
      role="button"
      tabIndex={isStop ? 0 : -1}
      aria-pressed={picked === id}
      data-key={id}
      className={names.join(' ').trim()}
      onMouseEnter={() => onLook(id)}
      onMouseLeave={() => onLook(null)}
      onFocus={() => onLook(id)}
      onClick={() => onPick(id)}
      onKeyDown={(event) => {
        if (event.key !== 'Enter' && event.key !== ' ') {
          onMove(event);
          return;
        }
        event.preventDefault();
        onPick(id);
      }}
    >
      <title>{words}</title>
      {children}
    </g>
  );
}

function Line({ path }: { path: string }): ReactNode {
  return (
    <>
      <path className="graph__reach" d={path} />
      <path className="graph__line" d={path} />
    </>
  );
}

function LinkItem({ placed, ...item }: ItemProps & { placed: PlacedIdentifier }): ReactNode {
  const { link, box, path } = placed;
  return (
    <GraphItem
      {...item}
      name={link.type}
      words={`${link.type} ${link.value}, since ${formatTime(Date.parse(link.first_seen))}`}
    >
      <Line path={path} />
      <Pill type={link.type} value={link.value} x={box.x} y={box.y} width={box.width} height={box.height} />
    </GraphItem>
  );
}

interface PillProps {
  readonly type: PlacedIdentifier['link']['type'];
  readonly value: string;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

function Pill({ type, value, x, y, width, height }: PillProps): ReactNode {
  return (
    <>
      <rect className="graph__pill" x={x} y={y} width={width} height={height} rx="9" />
      <circle className="graph__disc" cx={x + 22} cy={y + height / 2} r="13" />
      <g className="graph__sign">
        <Sign name={type} x={x + 14} y={y + height / 2 - 8} />
      </g>
      <text className="graph__type" x={x + 43} y={y + 17}>
        {type}
      </text>
      <text className="graph__value" x={x + 43} y={y + 33}>
        {cutMiddle(value, IDENTIFIER_CHARACTERS_MAX)}
      </text>
    </>
  );
}

function NodeCard({ node, box, isMarked, isAlone }: PlacedNode & { isMarked: boolean; isAlone: boolean }): ReactNode {
  const { id, isRoot, since } = node;
  const sinceWords = since === null ? 'merged into it' : `since ${formatTime(Date.parse(since))}`;
  const names = ['graph__node', isRoot ? 'graph__node--root' : '', isMarked ? 'graph__node--marked' : ''];
  return (
    <g className={names.join(' ').trim()}>
      <title>{id}</title>
      <rect x={box.x} y={box.y} width={box.width} height={box.height} rx="9" />
      <text className="graph__id" x={box.x + 14} y={box.y + 25}>
        {shortId(id)}
      </text>
      <text className="graph__type" x={box.x + 14} y={box.y + 44}>
        {isRoot && !isAlone ? 'the oldest: its id stays' : sinceWords}
      </text>
    </g>
  );
}

function MergeItem({ placed, ...item }: ItemProps & { placed: PlacedMerge }): ReactNode {
  const { merge, path, sign, label } = placed;
  const { via } = merge;
  const words = `via ${via.type} ${via.value}, a merge of ${nodeWords(merge.from, item.names)} into ${nodeWords(merge.into, item.names)}`;
  return (
    <GraphItem {...item} name="merge" words={words}>
      <Line path={path} />
      <rect className="graph__ground" {...label} rx="6" />
      <circle className="graph__disc" cx={sign.x + sign.width / 2} cy={sign.y + sign.height / 2} r={sign.width / 2} />
      <g className="graph__sign">
        <Sign name="merge" x={sign.x + 4} y={sign.y + 4} />
      </g>
      <text className="graph__type" x={label.x + 7} y={label.y + 16}>
        via {via.type}
      </text>
      <text className="graph__value" x={label.x + 7} y={label.y + 33}>
        {cutMiddle(via.value, LABEL_CHARACTERS_MAX)}
      </text>
    </GraphItem>
  );
}

function RefusalItem({ placed, ...item }: ItemProps & { placed: PlacedRefusal }): ReactNode {
  const { refusal, box, path, sign, label } = placed;
  const { short } = REFUSAL_WORDS[refusal.reason];
  const times = refusal.count === 1 ? 'refused once' : `refused ${formatNumber(refusal.count)} times`;
  return (
    <GraphItem {...item} name="refusal" words={`${refusal.type} ${refusal.value} was not linked: ${short}, ${times}`}>
      <Line path={path} />
      <rect className="graph__ground" {...label} rx="6" />
      <Pill type={refusal.type} value={refusal.value} x={box.x} y={box.y} width={box.width} height={box.height} />
      <circle
        className="graph__stop"
        cx={sign.x + sign.width / 2}
        cy={sign.y + sign.height / 2}
        r={sign.width / 2 - 1}
      />
      <g className="graph__stop-sign">
        <Sign name="refusal" x={sign.x + 4} y={sign.y + 4} />
      </g>
      <text className="graph__reason" x={label.x + 9} y={label.y + 18}>
        {short}
      </text>
      <text className="graph__type" x={label.x + 9} y={label.y + 34}>
        {times}
      </text>
    </GraphItem>
  );
}

function Fold({ fold, onUnfold }: { fold: PlacedFold; onUnfold: () => void }): ReactNode {
  const { box, count, path } = fold;
  return (
    <g className="graph__fold" onClick={onUnfold}>
      <path className="graph__line" d={path} />
      <rect x={box.x} y={box.y} width={box.width} height={box.height} rx="9" />
      <text className="graph__more" x={box.x + 43} y={box.y + 20}>
        and {formatNumber(count)} more
      </text>
    </g>
  );
}
