/**
 * Who may sign in to this account: members and open invitations, inviting another person, and removing a member. A
 * link of an invitation is shown only once and never mailed. One's own password is changed here too.
 */

import { type ReactNode, useState } from 'react';
import { Time } from '../time.tsx';
import type { Invitation, Member, MemberList } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { InviteDialog, RemoveDialog, type Removal } from './team-dialogs.tsx';
import { PasswordCard } from './team-password.tsx';

export default function Team(): ReactNode {
  const { data, error, reload } = useData<MemberList>('/members');
  const [isInviting, setIsInviting] = useState(false);
  const [removal, setRemoval] = useState<Removal | null>(null);

  return (
    <Page
      title="Team"
      actions={
        <Button kind="primary" onClick={() => setIsInviting(true)}>
          Invite a person
        </Button>
      }
    >
      <p className="lead">All members see all data of this account, in both environments, and can do everything.</p>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="the team" />}
      {data !== undefined && (
        <Card title="Members">
          <DataTable
            caption="Members of this account"
            columns={memberColumns(setRemoval)}
            rows={data.members}
            rowKey={({ id }) => id}
          />
        </Card>
      )}
      {data !== undefined && data.invitations.length > 0 && (
        <Card title="Open invitations">
          <DataTable
            caption="Open invitations"
            columns={invitationColumns(setRemoval)}
            rows={data.invitations}
            rowKey={({ id }) => id}
          />
        </Card>
      )}
      <PasswordCard />
      <InviteDialog isOpen={isInviting} onClose={() => setIsInviting(false)} onInvited={reload} />
      <RemoveDialog removal={removal} onClose={() => setRemoval(null)} onRemoved={reload} />
    </Page>
  );
}

function memberColumns(remove: (removal: Removal) => void): readonly Column<Member>[] {
  return [
    {
      key: 'email',
      label: 'E-mail',
      render: ({ email, is_you }) => (
        <span className="row">
          {email} {is_you && <Badge tone="quiet">you</Badge>}
        </span>
      ),
    },
    { key: 'created', label: 'Member since', render: ({ created_at }) => <Time at={created_at} isDate /> },
    {
      key: 'signed-in',
      label: 'Last signed in',
      render: ({ last_signed_in_at }) =>
        last_signed_in_at === null ? <span className="muted">never</span> : <Time at={last_signed_in_at} relative />,
    },
    {
      key: 'actions',
      label: '',
      align: 'end',
      render: ({ id, email, is_you }) =>
        is_you ? null : (
          <Button aria-label={`Remove ${email}`} onClick={() => remove({ kind: 'member', id, email })}>
            Remove
          </Button>
        ),
    },
  ];
}

function invitationColumns(remove: (removal: Removal) => void): readonly Column<Invitation>[] {
  return [
    {
      key: 'email',
      label: 'E-mail',
      render: ({ email }) => email ?? <span className="muted">anyone with the link</span>,
    },
    { key: 'created', label: 'Invited', render: ({ created_at }) => <Time at={created_at} relative /> },
    { key: 'expires', label: 'Expires', render: ({ expires_at }) => <Time at={expires_at} relative /> },
    {
      key: 'actions',
      label: '',
      align: 'end',
      render: ({ id, email }) => (
        <Button
          aria-label={`Withdraw the invitation of ${email ?? 'anyone with the link'}`}
          onClick={() => remove({ kind: 'invitation', id, email })}
        >
          Withdraw
        </Button>
      ),
    },
  ];
}
