/**
 * The signs of the identity graph: one for each type of identifier, one for a merge, one for a refusal. Each is also
 * said in words wherever it stands, so that neither colour nor shape is needed to understand it.
 */

import type { ReactNode } from 'react';
import { shortId } from '../identity-names.ts';
import type { IdentifierType } from '../api-constants.ts';
import type { LinkedIdentifier } from '../api-types.ts';
import { LineIcon } from '../ui/icons.tsx';

const PATHS: Readonly<Record<IdentifierType | 'merge' | 'refusal', string>> = {
  user_id:
    'M2.5 3.5h11v9h-11zM6 8.25a1.25 1.25 0 1 0 0-2.5 1.25 1.25 0 0 0 0 2.5ZM4.25 10.75c.2-.9.9-1.25 1.75-1.25s1.55.35 1.75 1.25M9.75 6.5h1.75M9.75 9h1.75',
  email: 'M2.5 4h11v8h-11zM2.5 4.5 8 8.75l5.5-4.25',
  phone_number: 'M4.75 1.75h6.5v12.5h-6.5zM7.25 12h1.5',
  anon_id: 'M2.5 3h11v10h-11zM2.5 6h11M4.5 4.5v.01M6.25 4.5v.01',
  merge: 'M2.5 4c4.5 0 4 4 7.5 4M2.5 12c4.5 0 4-4 7.5-4M10 8h3.5',
  refusal: 'M4 4l8 8M12 4l-8 8',
};

interface SignProps {
  readonly name: IdentifierType | 'merge' | 'refusal';
  readonly x?: number;
  readonly y?: number;
}

export function Sign({ name, ...at }: SignProps): ReactNode {
  return <LineIcon path={PATHS[name]} {...at} />;
}

/** An identifier in text: sign, type and value. */
export function IdentifierText({ type, value }: { type: IdentifierType; value: string }): ReactNode {
  return (
    <span className={`identifier identifier--${type}`}>
      <Sign name={type} />
      <span className="identifier__type">{type}</span> <span className="identifier__value">{value}</span>
    </span>
  );
}

export type NodeNames = ReadonlyMap<string, LinkedIdentifier>;

/** A profile that was or may be merged, in text: by an identifier, and by its id where it has none any more. */
export function NodeName({ id, names }: { id: string; names: NodeNames }): ReactNode {
  const link = names.get(id);
  if (link === undefined) {
    return (
      <>
        profile <code title={id}>{shortId(id)}</code>
      </>
    );
  }
  return (
    <>
      the profile of <IdentifierText type={link.type} value={link.value} />
    </>
  );
}

/** The same where there is room for text only. */
export function nodeWords(id: string, names: NodeNames): string {
  const link = names.get(id);
  return link === undefined ? shortId(id) : `${link.type} ${link.value}`;
}
