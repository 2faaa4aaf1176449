/**
 * The filters of the Live view: event name, person, key. What is chosen stands in the address; a person stands there by
 * profile id, never by e-mail address or phone number, because addresses end up in histories and chats. A person is
 * looked up by any identifier when the form is sent; if several match, the reader chooses.
 */

import { type ChangeEvent, type FormEvent, type ReactNode, useState } from 'react';
import { ApiError, get } from '../api.ts';
import { shortId } from '../identity-names.ts';
import { nameOf } from '../person-name.ts';
import { Link, navigate, useAddress, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import type { Environment } from '../api-constants.ts';
import type { Counts, Key, Profile, ProfileMatch, ProfileMatches } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { SelectField, TextField } from '../ui/field.tsx';
import { Icon } from '../ui/icons.tsx';
import { useData } from '../use-data.ts';
import { topNames } from './overview-figures.ts';

const NAMES_OFFERED_MAX = 100;
const FOUND_MAX = 10;
const NAMES_ID = 'live-names';

export function LiveFilters({ keys }: { keys: readonly Key[] }): ReactNode {
  const environment = useEnvironment();
  const { query } = useAddress();
  const [name] = useQueryValue('name');
  const [profileId, setProfileId] = useQueryValue('person');
  const [keyId, setKeyId] = useQueryValue('key');
  const person = usePersonSearch(environment, setProfileId);
  const isFiltered = ['name', 'person', 'key'].some((each) => query.has(each));
  const sendForm = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    setName(textOf(fields.get('name')).trim());
    person.search(textOf(fields.get('person')).trim());
  };
  return (
    <form className="live-filters" onSubmit={sendForm} aria-label="Filters">
      <NameField name={name} />
      {profileId === '' ? (
        <TextField
          label="Person"
          name="person"
          placeholder="user_id, e-mail, phone, anon_id or profile id"
          autoComplete="off"
          autoCapitalize="none"
          spellCheck={false}
          error={person.problem}
          onChange={person.forgetProblem}
        />
      ) : (
        <ChosenPerson profileId={profileId} onClear={() => setProfileId('')} />
      )}
      <SelectField
        label="Key"
        options={keyOptions(keys, environment, keyId)}
        value={keyId}
        onChange={(event) => setKeyId(event.target.value)}
      />
      <div className="live-filters__end">
        <Button type="submit" busy={person.isBusy}>
          Apply
        </Button>
        {isFiltered && (
          <Link className="button button--quiet" to={viewPath(environment, 'live')}>
            Clear
          </Link>
        )}
      </div>
      {person.found.length > 1 && (
        <div className="live-filters__found">
          <p>That is an identifier of several people. Which one?</p>
          {person.found.map(({ matched, profile }) => (
            <Button key={profile.id} onClick={() => person.choose(profile.id)}>
              {nameOf(profile)} <span className="muted">by {matched.join(', ')}</span>
            </Button>
          ))}
        </div>
      )}
    </form>
  );
}

/** Through the address as it is now: with the other values that were set by the same form. */
function setName(name: string): void {
  const query = new URLSearchParams(location.search);
  if ((query.get('name') ?? '') === name) return;
  if (name === '') query.delete('name');
  else query.set('name', name);
  const text = query.toString();
  navigate(location.pathname + (text === '' ? '' : `?${text}`));
}

function NameField({ name }: { name: string }): ReactNode {
  const { data } = useData<Counts>('/events/counts?interval=day&group_by=event_name');
  const known = topNames(data?.buckets ?? [], NAMES_OFFERED_MAX).map((each) => each.name);
  const [text, setText] = useState(name);
  const [shownName, setShownName] = useState(name);
  if (name !== shownName) {
    setShownName(name);
    setText(name);
  }
  const change = ({ target: { value }, nativeEvent }: ChangeEvent<HTMLInputElement>): void => {
    setText(value);
    // Chosen from the list, not typed: there is nothing more to wait for.
    if (isChosen(nativeEvent) && known.includes(value)) setName(value);
  };
  return (
    <>
      <TextField
        label="Event name"
        name="name"
        value={text}
        placeholder="any"
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        list={NAMES_ID}
        onChange={change}
      />
      <datalist id={NAMES_ID}>
        {known.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </datalist>
    </>
  );
}

/** Choosing from a datalist is an input event without a type, or one that replaces the whole text. */
function isChosen(event: Event): boolean {
  return !(event instanceof InputEvent) || event.inputType === 'insertReplacementText';
}

function ChosenPerson({ profileId, onClear }: { profileId: string; onClear: () => void }): ReactNode {
  const { data } = useData<Profile>(`/profiles/${encodeURIComponent(profileId)}`);
  return (
    <div className="field">
      <span className="field__label">Person</span>
      <span className="live-chosen">
        {data === undefined ? shortId(profileId) : nameOf(data)}
        <button type="button" className="live-chosen__clear" aria-label="Any person" onClick={onClear}>
          <Icon name="close" />
        </button>
      </span>
    </div>
  );
}

interface PersonSearch {
  readonly isBusy: boolean;
  readonly problem: string | undefined;
  readonly found: readonly ProfileMatch[];
  readonly search: (value: string) => void;
  readonly choose: (profileId: string) => void;
  readonly forgetProblem: () => void;
}

function usePersonSearch(environment: Environment, setProfileId: (id: string) => void): PersonSearch {
  const [isBusy, setIsBusy] = useState(false);
  const [problem, setProblem] = useState<string>();
  const [found, setFound] = useState<readonly ProfileMatch[]>([]);
  const look = async (value: string): Promise<void> => {
    setIsBusy(true);
    try {
      const path = `/profiles/search?limit=${FOUND_MAX}&value=${encodeURIComponent(value)}`;
      const { profiles } = await get<ProfileMatches>(environment, path);
      setFound(profiles);
      if (profiles.length === 0) setProblem('No one has this identifier or name.');
      if (profiles.length === 1 && profiles[0] !== undefined) setProfileId(profiles[0].profile.id);
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'The search failed.');
    }
    setIsBusy(false);
  };
  const forget = (): void => {
    setProblem(undefined);
    setFound([]);
  };
  return {
    isBusy,
    problem,
    found,
    search: (value) => {
      forget();
      if (value !== '') void look(value);
    },
    choose: (profileId) => {
      forget();
      setProfileId(profileId);
    },
    forgetProblem: forget,
  };
}

/** Revoked keys too: their events are still there. A key of the address that is not known is offered as it is. */
function keyOptions(keys: readonly Key[], environment: Environment, keyId: string) {
  const own = keys.filter((key) => key.environment === environment);
  const options = own.map(({ id, name, prefix, last_four: lastFour, state }) => ({
    value: id,
    label: `${name} (${prefix}…${lastFour})${state === 'active' ? '' : `, ${state}`}`,
  }));
  const isKnown = keyId === '' || own.some(({ id }) => id === keyId);
  return [{ value: '', label: 'Any key' }, ...options, ...(isKnown ? [] : [{ value: keyId, label: keyId }])];
}

function textOf(value: FormDataEntryValue | null): string {
  return typeof value === 'string' ? value : '';
}
