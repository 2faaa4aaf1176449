/**
 * The search for people, the same for every store: what matches, in which order, and where a page ends. Prefixes of
 * names and identifiers have no index, because the processor would pay for it with every new person; instead a search
 * scans all people, newest first, for as long as its budget allows, and its cursor continues from there. So it is
 * complete over all pages, and a page says when it ended early.
 *
 * A store narrows each step down to candidates with `roughFilter`, in its own SQL, and reads only those; `matchOf`
 * decides. Case does not matter, nor whether an accent is part of its letter or a character of its own: stores ignore case for
 * ASCII letters, everything else is done here (`folded`).
 */

import { setImmediate as yieldToOthers } from 'node:timers/promises';
import type { Group } from '../identity/property-updates.ts';
import { parseJson } from '../json/parse.ts';
import type { IdentifierType, NodeNumber } from '../model.ts';
import {
  type FoundPerson,
  MATCHED_BY,
  type MatchedBy,
  type PeoplePage,
  type PeopleQuery,
  type StoredProfile,
} from '../store.ts';
import { type CursorScope, PAGE_LENGTH_MAX, scopedCursorOf, scopedNumbersOf } from './cursor.ts';
import type { IdentifierRow } from './profile.ts';

export const NAME_FIELDS = ['first_name', 'last_name', 'name', 'full_name'] as const;

/** A person as a store reads it: the number of its root, and its identifiers as they are matched. */
export interface Candidate {
  readonly no: NodeNumber;
  readonly profile: StoredProfile;
  readonly identifiers: readonly Pick<IdentifierRow, 'type' | 'value' | 'raw'>[];
}

export interface Step {
  readonly found: readonly (FoundPerson & { readonly no: NodeNumber })[];
  /** Everyone from this number on has been looked at; null when no one is left. */
  readonly end: NodeNumber | null;
}

interface PeopleSource {
  readonly tenant: number;
  findProfile(type: IdentifierType, normalised: string): Promise<StoredProfile | undefined>;
  profile(id: string): Promise<StoredProfile | undefined>;
  /**
   * Looks at some people with numbers below `before`, newest first, until `room` of them match or the time is up; at
   * least at one, if there is one.
   */
  step(before: NodeNumber, room: number, until: number): Promise<Step>;
}

export async function searchPeople(source: PeopleSource, query: PeopleQuery): Promise<PeoplePage> {
  const { text, property } = query;
  const scope: CursorScope = [source.tenant, text, property?.name ?? null, property?.value ?? null];
  const { exactGiven, before } = startIn(scope, query.cursor);
  const exact = await exactMatches(source, query);
  const rows: FoundPerson[] = exact.slice(exactGiven, exactGiven + query.limit);
  const exactEnd = Math.min(exact.length, exactGiven + query.limit);
  const pageUpTo = (no: NodeNumber): PeoplePage => ({
    rows,
    nextCursor: scopedCursorOf('people', scope, exactEnd, no),
    isPartial: rows.length < query.limit,
  });
  // Returned at once: a client that asks for one person does not wait for the scan of all others.
  if (rows.length > 0) return pageUpTo(before);
  const exactIds = new Set(exact.map(({ profile }) => profile.id));
  const until = performance.now() + query.budgetMs;
  let length = 0;
  for (let at = before; ; ) {
    // One more than fits says whether there are more.
    const { found, end } = await source.step(at, query.limit + 1 - rows.length + exactIds.size, until);
    for (const person of found) {
      if (exactIds.has(person.profile.id)) continue;
      if (rows.length === query.limit || length > PAGE_LENGTH_MAX) return pageUpTo(at);
      rows.push({ matched: person.matched, profile: person.profile });
      length += lengthOf(person.profile);
      at = person.no;
    }
    if (end === null) return { rows, nextCursor: null, isPartial: false };
    at = end;
    if (performance.now() >= until) return { ...pageUpTo(at), isPartial: true };
    await yieldToOthers();
  }
}

/** Where a page begins: after so many exact matches, below this number. */
function startIn(scope: CursorScope, cursor: string | null): { exactGiven: number; before: NodeNumber } {
  if (cursor === null) return { exactGiven: 0, before: Number.MAX_SAFE_INTEGER };
  const [exactGiven = 0, before = 0] = scopedNumbersOf('people', scope, cursor, 2);
  return { exactGiven: Math.max(0, exactGiven), before };
}

/** Those that `text` is an identifier or the id of, each once. The same on every page, so that none is given twice. */
async function exactMatches(source: PeopleSource, { text, exact, property }: PeopleQuery): Promise<FoundPerson[]> {
  if (text === null) return [];
  const found: [MatchedBy, StoredProfile | undefined][] = [];
  for (const { type, normalised } of exact) found.push([type, await source.findProfile(type, normalised)]);
  found.push(['id', await source.profile(text)]);
  const people = new Map<string, { matched: MatchedBy[]; profile: StoredProfile }>();
  for (const [by, profile] of found) {
    if (profile === undefined || !hasProperty(profile, property)) continue;
    people.getOrInsert(profile.id, { matched: [], profile }).matched.push(by);
  }
  return [...people.values()];
}

function lengthOf({ profileFields, userProperties }: StoredProfile): number {
  const values = [...profileFields.values(), ...userProperties.values()];
  return values.reduce((sum, { value }) => sum + value.length, 0);
}

/** What a person is matched by; null without a match. Without a text it is empty for everyone with the property. */
export function matchOf(
  { profile, identifiers }: Candidate,
  { text, property }: Pick<PeopleQuery, 'text' | 'property'>,
): readonly MatchedBy[] | null {
  if (!hasProperty(profile, property)) return null;
  if (text === null) return [];
  const start = folded(text);
  const phoneStart = phoneCharacters(text);
  const types = new Set<MatchedBy>();
  for (const { type, value, raw } of identifiers) {
    const isBeginning =
      folded(value).startsWith(start) ||
      folded(raw ?? value).startsWith(start) ||
      (type === 'phone_number' && phoneStart !== null && value.startsWith(phoneStart));
    if (isBeginning) types.add(type);
  }
  if (namesIn(profile).some((name) => beginsAWord(folded(name), start))) types.add('name');
  return types.size === 0 ? null : MATCHED_BY.filter((by) => types.has(by));
}

function hasProperty({ userProperties, profileFields }: StoredProfile, property: PeopleQuery['property']): boolean {
  if (property === null) return true;
  const { name, value } = property;
  return [userProperties.get(name), profileFields.get(name)].some(
    (one) => one !== undefined && (value === null || value === comparableText(one.value)),
  );
}

function comparableText(json: string): string {
  return json.startsWith('"') ? (JSON.parse(json) as string) : json;
}

function namesIn({ profileFields }: StoredProfile): string[] {
  const fields = NAME_FIELDS.map((name) => comparableText(profileFields.get(name)?.value ?? '""'));
  return [`${fields[0]?.trim()} ${fields[1]?.trim()}`, ...fields];
}

function beginsAWord(name: string, start: string): boolean {
  for (let at = name.indexOf(start); at !== -1; at = name.indexOf(start, at + 1)) {
    if (at === 0 || name[at - 1] === ' ') return true;
  }
  return false;
}

/** A phone number without what people write between its digits; null for what is none. */
function phoneCharacters(text: string): string | null {
  return /^\+?[\d\s()./-]+$/.test(text) ? text.replace(/[^+\d]/g, '') : null;
}

/** Patterns for LIKE, with a backslash as the escape character. Everyone who matches contains them. */
export interface RoughFilter {
  /** Matches an identifier, normalised or as received; null to match identifiers by `properties` alone. */
  readonly identifier: string | null;
  /** The beginning of a normalised phone number; null for what cannot be one. */
  readonly phone: string | null;
  /** Match the properties of a node, as JSON (identity/property-updates.ts): both must match. */
  readonly properties: readonly [string, string];
  /**
   * Whether the properties of one node may match: more exact than `properties`, and still without reading the whole
   * profile.
   */
  readonly mayMatch: (json: string) => boolean;
}

/** Null when everyone is a candidate. */
export function roughFilter({ text, property }: Pick<PeopleQuery, 'text' | 'property'>): RoughFilter | null {
  if (text !== null) {
    const start = comparable(text);
    const [firstWord = ''] = start.split(' ');
    const phone = phoneCharacters(text);
    const inProperties = plainInJson(firstWord);
    const mayHaveWord = containing(inProperties);
    return {
      identifier: `${escaped(start)}%`,
      phone: phone === null ? null : `${escaped(phone)}%`,
      properties: [`%${escaped(inProperties)}%`, '%'],
      mayMatch: (json) => mayHaveWord.test(json) && hasNameLike(json, folded(firstWord)),
    };
  }
  if (property === null) return null;
  const { name, value } = property;
  const [inName, inValue] = [plainInJson(comparable(name)), plainInJson(comparable(value ?? ''))];
  const [mayHaveName, mayHaveValue] = [containing(inName), containing(inValue)];
  return {
    identifier: null,
    phone: null,
    properties: [`%${escaped(inName)}%`, `%${escaped(inValue)}%`],
    mayMatch: (json) =>
      mayHaveName.test(json) &&
      mayHaveValue.test(json) &&
      groupsOf(json).some(([, , , fields, properties]) => name in properties || name in fields),
  };
}

/** Like a case-insensitive LIKE: takes a fraction of the time of parsing, and excludes nearly everyone. */
function containing(text: string): RegExp {
  return new RegExp(RegExp.escape(text), 'i');
}

/** Names may be in several nodes of a profile, so a part of one is enough here. */
function hasNameLike(json: string, firstWord: string): boolean {
  return groupsOf(json).some(([, , , fields]) =>
    NAME_FIELDS.some((name) => {
      const value = fields[name];
      return typeof value === 'string' && beginsAWord(folded(value), firstWord);
    }),
  );
}

/** Numbers that lose digits here do not matter: only names and texts are looked at. */
function groupsOf(json: string): readonly Group[] {
  return parseJson(json) as readonly Group[];
}

/** The same for texts that differ only in case, or in how their accents are encoded. */
function folded(text: string): string {
  // The small sigma has another form at the end of a word, which may not be the end of what is searched for.
  return text.normalize('NFC').toLowerCase().replaceAll('ς', 'σ').normalize('NFC');
}

/** Up to the first character that is not ASCII and that `folded` may change: the stores compare it as it is. */
function comparable(text: string): string {
  const characters = text.normalize('NFC').match(/\P{M}\p{M}*|\p{M}+/gu) ?? [];
  const end = characters.findIndex((one) => !/^[\0-\x7f]$/.test(one) && !isSameInAnyForm(one));
  return end === -1 ? text : characters.slice(0, end).join('');
}

function isSameInAnyForm(character: string): boolean {
  return [character.normalize('NFD'), character.toLowerCase(), character.toUpperCase()].every(
    (one) => one === character,
  );
}

/** Up to the first character that JSON escapes. */
function plainInJson(text: string): string {
  return /^[^"\\\u0000-\u001f\ud800-\udfff]*/.exec(text)?.[0] ?? '';
}

function escaped(text: string): string {
  return text.replace(/[\\%_]/g, (one) => `\\${one}`);
}
