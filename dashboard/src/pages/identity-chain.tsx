/**
 * "Why are these one person?": two identifiers are chosen, and the one chain of requests between them is shown. The
 * choice stands in the address by names without personal data. The server finds the chain; the picture marks it.
 */

import { type ReactNode, useMemo } from 'react';
import type { ApiError } from '../api.ts';
import { findByKey, linkKey, nodeNames } from '../identity-names.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { Time } from '../time.tsx';
import type { ChainStep, Identity, LinkedIdentifier } from '../api-types.ts';
import { Card } from '../ui/card.tsx';
import { SelectField, type SelectOption } from '../ui/field.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { useData } from '../use-data.ts';
import { IdentifierText, NodeName, type NodeNames, Sign } from './identifier-icon.tsx';

const NO_STEPS: readonly ChainStep[] = [];

interface Chain {
  readonly from: string;
  readonly to: string;
  readonly setFrom: (key: string) => void;
  readonly setTo: (key: string) => void;
  readonly steps: readonly ChainStep[];
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
}

export function useChain(profileId: string, identity: Identity): Chain {
  const [from, setFrom] = useQueryValue('from');
  const [to, setTo] = useQueryValue('to');
  const first = findByKey(identity, from).link;
  const second = findByKey(identity, to).link;
  const query = first === undefined || second === undefined ? null : `from=${asked(first)}&to=${asked(second)}`;
  const { data, error, isLoading } = useData<Identity>(
    query === null ? null : `/profiles/${profileId}/identity?${query}`,
  );
  return { from, to, setFrom, setTo, steps: data?.chain ?? NO_STEPS, error, isLoading };
}

function asked({ type, value }: LinkedIdentifier): string {
  return encodeURIComponent(`${type}:${value}`);
}

export function IdentityChain({ identity, chain }: { identity: Identity; chain: Chain }): ReactNode {
  const { from, to, setFrom, setTo, steps, error, isLoading } = chain;
  const options = useMemo(
    (): SelectOption[] => [
      { value: '', label: 'Choose an identifier' },
      ...identity.identifiers.map((link) => ({ value: linkKey(link), label: `${link.type}: ${link.value}` })),
    ],
    [identity],
  );
  const names = useMemo(() => nodeNames(identity), [identity]);
  if (identity.identifiers.length < 2) return null;
  return (
    <Card title="Why are these one person?">
      <div className="chain__ends">
        <SelectField
          label="This identifier"
          options={options}
          value={from}
          onChange={(event) => setFrom(event.target.value)}
        />
        <SelectField
          label="and this one"
          options={options}
          value={to}
          onChange={(event) => setTo(event.target.value)}
        />
      </div>
      {error !== undefined && <ErrorNotice error={error} />}
      {isLoading && steps.length === 0 && <Loading what="the chain" />}
      {steps.length === 0 && error === undefined && !isLoading && (
        <p className="muted">Choose two. There is exactly one chain of requests from one to the other.</p>
      )}
      {steps.length > 0 && (
        <ol className="chain" aria-label="The chain of requests">
          {steps.map((step) => (
            <Step
              key={`${step.kind} ${step.trace_id} ${step.userIndex} ${step.value ?? step.from ?? ''}`}
              step={step}
              names={names}
            />
          ))}
        </ol>
      )}
    </Card>
  );
}

interface StepProps {
  readonly step: ChainStep;
  readonly names: NodeNames;
}

function Step({ step, names }: StepProps): ReactNode {
  const environment = useEnvironment();
  return (
    <li className={`chain__step chain__step--${step.type ?? 'merge'}`}>
      <span className="chain__sign">
        <Sign name={step.type ?? 'merge'} />
      </span>
      <div>
        <p>
          {step.kind === 'merge' ? <MergeWords step={step} names={names} /> : <LinkWords step={step} names={names} />}
        </p>
        <p className="muted small">
          <Time at={step.at} />, <code>users[{step.userIndex}]</code> of request{' '}
          <Link to={viewPath(environment, `traces/${step.trace_id}`)} className="mono">
            {step.trace_id}
          </Link>
        </p>
      </div>
    </li>
  );
}

function LinkWords({ step, names }: StepProps): ReactNode {
  const { type, value, node = '' } = step;
  if (type === undefined || value === undefined) return step.text;
  const name = names.get(node);
  const isItsName = name?.type === type && name.value === value;
  return (
    <>
      <IdentifierText type={type} value={value} /> was first seen
      {!isItsName && (
        <>
          , and has belonged to <NodeName id={node} names={names} /> since
        </>
      )}
      .
    </>
  );
}

function MergeWords({ step, names }: StepProps): ReactNode {
  const { via, nodes } = step;
  if (via === undefined || nodes === undefined) return step.text;
  return (
    <>
      A request had <IdentifierText type={via.type} value={via.value} />, and with it an identifier of{' '}
      <NodeName id={nodes[1]} names={names} />: so the two profiles were merged.
    </>
  );
}
