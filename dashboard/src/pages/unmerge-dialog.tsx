/**
 * Taking back what one request merged. Says before what will happen, and after which profiles there are now. A request
 * may have merged several profiles at once; all its merges go together, because that is how the server undoes them.
 */

import type { ReactNode } from 'react';
import { send } from '../api.ts';
import { nodeNames } from '../identity-names.ts';
import { nameOf } from '../person-name.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import type { Identity, Merge, Profile, Unmerged } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ErrorNotice, Notice } from '../ui/notice.tsx';
import { useData } from '../use-data.ts';
import { useSending } from '../use-sending.ts';
import { IdentifierText, NodeName } from './identifier-icon.tsx';

export type UnmergeResult = Unmerged;

interface UnmergeDialogProps {
  readonly profileId: string;
  readonly identity: Identity;
  readonly merge: Merge | undefined;
  readonly onClose: () => void;
  readonly onDone: (result: UnmergeResult) => void;
}

export function UnmergeDialog(props: UnmergeDialogProps): ReactNode {
  const { merge, onClose } = props;
  return (
    <Dialog title="These are not one person" isOpen={merge !== undefined} onClose={onClose}>
      {merge !== undefined && <UnmergeForm {...props} merge={merge} />}
    </Dialog>
  );
}

function UnmergeForm(props: UnmergeDialogProps & { merge: Merge }): ReactNode {
  const { profileId, identity, merge, onClose, onDone } = props;
  const environment = useEnvironment();
  const { run, isBusy, error } = useSending();
  const names = nodeNames(identity);
  const others = identity.merges.filter(({ trace_id: traceId }) => traceId === merge.trace_id).length - 1;
  const unmerge = (): Promise<void> =>
    run(async () => {
      const path = `/profiles/${profileId}/unmerge`;
      onDone(await send<Unmerged>(environment, 'POST', path, { trace_id: merge.trace_id }));
    });
  return (
    <div className="stack">
      <p>
        By <IdentifierText type={merge.via.type} value={merge.via.value} />, <NodeName id={merge.from} names={names} />{' '}
        was merged into <NodeName id={merge.into} names={names} />. If you undo that:
      </p>
      <ul className="bullets">
        <li>Each side gets back its own identifiers, properties and events, including those after the merge.</li>
        <li>
          The two are kept apart from now on. Of later requests that would join them again, the events are kept and the
          link is not made.
        </li>
        {others > 0 && (
          <li>
            The same request made {others} more {others === 1 ? 'merge' : 'merges'} here.{' '}
            {others === 1 ? 'It is' : 'They are'} undone too.
          </li>
        )}
        <li>No event is lost. The audit records the unmerge.</li>
      </ul>
      {error !== undefined && <ErrorNotice error={error} />}
      <div className="form-end">
        <Button onClick={onClose}>Leave them merged</Button>
        <Button kind="danger" busy={isBusy} onClick={() => void unmerge()}>
          Undo the merge
        </Button>
      </div>
    </div>
  );
}

export function UnmergeNotice({ result, profileId }: { result: UnmergeResult; profileId: string }): ReactNode {
  const environment = useEnvironment();
  return (
    <Notice
      tone="good"
      title={<output>Undone. There are now {result.profile_ids.length} profiles instead of one:</output>}
    >
      <ul className="bullets">
        {result.profile_ids.map((id) => (
          <li key={id}>
            <NamedProfile id={id} /> {id === profileId && '(this one)'}
          </li>
        ))}
      </ul>
      <p className="small">
        In the <Link to={viewPath(environment, 'audit')}>audit</Link> as{' '}
        <Link to={viewPath(environment, `traces/${result.trace_id}`)} className="mono">
          {result.trace_id}
        </Link>
      </p>
    </Notice>
  );
}

/** Asked for afresh: what is kept of names is from before. */
function NamedProfile({ id }: { id: string }): ReactNode {
  const environment = useEnvironment();
  const { data } = useData<Profile>(`/profiles/${id}`);
  return (
    <Link to={`${viewPath(environment, `people/${id}`)}?tab=identity`}>
      {data !== undefined && nameOf(data)} <span className="mono small">{id}</span>
    </Link>
  );
}
