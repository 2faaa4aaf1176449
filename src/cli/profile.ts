/**
 * `sluice profile user_id=42`: one person as Sluice knows them: identifiers, properties with the request that set each,
 * why all of it is one person, and the last events. Finds by an identifier, matched as the processor matches it, or by
 * a profile id; the id of a profile that was merged away finds the surviving one.
 */

import { jsonText } from '../api/responses.ts';
import { identityJson } from '../api/routes/identity.ts';
import { eventJson, profileJson } from '../api/stored-json.ts';
import { suggestion } from '../config/flags.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { isJunk, type MatchOptions, normalise } from '../identity/match-keys.ts';
import { IDENTIFIER_TYPES, type IdentifierType, REFUSAL_REASONS } from '../model.ts';
import type { EventReader, ProfileReader, Provenance, StoredEvent, StoredIdentity, StoredProfile } from '../store.ts';
import { uuidOf } from '../views/uuid.ts';
import { readArguments } from './arguments.ts';
import { countOf, localTime } from './local-time.ts';
import type { Shell } from './shell.ts';
import { bold, dim, printable, renderTable, shorten } from './table.ts';
import { chooseTenant, readDataSource, type Tenant, withStore } from './tenant.ts';

const EVENTS_SHOWN = 10;
const VALUE_COLUMNS = 60;

type Who = { readonly id: string } | { readonly type: IdentifierType; readonly value: string };

interface Found {
  readonly profile: StoredProfile;
  readonly identity: StoredIdentity;
  readonly events: readonly StoredEvent[];
}

export async function runProfile(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('profile', args);
  const { mistakes, isJson } = flags;
  const dataSource = readDataSource(flags, shell);
  const [given, ...others] = flags.positionals;
  const who = readWho(given, mistakes);
  flags.refuse(others, 'one person at a time');
  if (who === undefined || mistakes.length > 0) throw flags.error();

  const options = matchOptionsOf(dataSource.config);
  return withStore(shell, dataSource.config, async (store) => {
    const tenant = await chooseTenant(shell, store, dataSource);
    const found = await find(store, tenant, who, options);
    if (found === undefined) {
      shell.out(isJson ? `${JSON.stringify({ error: 'not found' })}\n` : notFoundText(who, tenant, options));
      return 1;
    }
    shell.out(isJson ? `${jsonOf(found)}\n` : cardOf(found, tenant));
    return 0;
  });
}

function readWho(given: string | undefined, mistakes: string[]): Who | undefined {
  const expected = 'expected one of user_id=…, email=…, phone_number=…, anon_id=…, or a profile id';
  if (given === undefined) {
    mistakes.push(`no person given; ${expected}`);
    return undefined;
  }
  const id = uuidOf(given);
  if (id !== undefined) return { id };
  const at = given.indexOf('=');
  const name = at < 0 ? given : given.slice(0, at);
  const type = IDENTIFIER_TYPES.find((known) => known === name);
  if (at >= 0 && type !== undefined && given.slice(at + 1).trim() !== '') return { type, value: given.slice(at + 1) };
  if (type !== undefined) mistakes.push(`${name} has no value; expected ${name}=…`);
  else mistakes.push(`"${given}" is not an identifier; ${expected}${at < 0 ? '' : suggestion(name, IDENTIFIER_TYPES)}`);
  return undefined;
}

async function find(
  store: ProfileReader & EventReader,
  tenant: Tenant,
  who: Who,
  options: MatchOptions,
): Promise<Found | undefined> {
  const profile =
    'id' in who
      ? await store.profile(tenant.id, who.id)
      : await store.findProfile(tenant.id, who.type, normalise(who.type, who.value, options));
  if (profile === undefined) return undefined;
  const identity = await store.identity(tenant.id, profile.id);
  const query = { profileId: profile.id, eventName: null, from: null, to: null, limit: EVENTS_SHOWN, cursor: null };
  const page = await store.events(tenant.id, query);
  return {
    profile,
    identity: identity ?? { id: profile.id, identifiers: [], merges: [], refusals: [] },
    events: page?.rows ?? [],
  };
}

function jsonOf({ profile, identity, events }: Found): string {
  return jsonText({
    profile: profileJson(profile, true),
    identity: identityJson(identity),
    events: events.map((event) => eventJson(event)),
  });
}

function cardOf({ profile, identity, events }: Found, tenant: Tenant): string {
  const identifiers = IDENTIFIER_TYPES.flatMap((type) => profile.identifiers[type].map((value) => [type, value]));
  const merged = profile.mergedIds.length === 0 ? '' : `, ${countOf(profile.mergedIds.length, 'profile')} merged in`;
  const parts = [
    `${bold(`Profile ${profile.id}`)}  ${dim(tenant.title)}
  first seen ${localTime(profile.firstSeen)}, last seen ${localTime(profile.lastSeen)}, ${countOf(profile.eventCount, 'event')}${merged}`,
    renderTable(['identifier', 'value'], identifiers),
    ...valueTable('profile field', profile.profileFields),
    ...valueTable('user property', profile.userProperties),
    `${bold('Why this is one person')}\n${identityTree(identity)}`,
  ];
  if (events.length > 0) {
    const title = events.length < profile.eventCount ? `last ${events.length} events` : 'events';
    const rows = events.map((event) => [
      localTime(event.timestamp),
      event.eventName,
      event.revenue ?? '',
      shorten(event.properties, VALUE_COLUMNS),
    ]);
    parts.push(renderTable([title, 'name', 'revenue', 'properties'], rows));
  }
  return `${parts.join('\n\n')}\n`;
}

function valueTable(title: string, values: ReadonlyMap<string, Provenance>): string[] {
  if (values.size === 0) return [];
  const rows = [...values].map(([name, { value, traceId, receivedAt }]) => [
    name,
    shorten(value, VALUE_COLUMNS),
    localTime(receivedAt),
    traceId,
  ]);
  return [renderTable([title, 'value', 'set at', 'set by request'], rows)];
}

function notFoundText(who: Who, tenant: Tenant, options: MatchOptions): string {
  const name = 'id' in who ? `the id ${who.id}` : `${who.type} ${JSON.stringify(who.value)}`;
  const lines = [`No person in ${tenant.title} has ${printable(name)}.`];
  if ('type' in who && isJunk(who.value.trim(), options)) {
    lines.push('That is a junk value: it is stored, but no person is matched by it.');
  }
  if ('type' in who && who.type === 'phone_number' && !/^\s*(\+|00)/.test(who.value)) {
    lines.push('A number without + or 00 and its country is matched by its digits alone.');
  }
  lines.push('Another tenant? --account NAME, --env production|development. Sent just now? sluice trace ID');
  return `${lines.join('\n')}\n`;
}

interface Branch {
  readonly label: string;
  readonly branches: readonly Branch[];
}

/**
 * Why a profile is one person, drawn as a tree: the surviving node at the root, under each node the identifiers first
 * seen on it, then the nodes that requests merged with it. Merges never form a cycle, so the path between any two
 * identifiers is the one chain of requests that linked them. Refused links come last.
 */
function identityTree(identity: StoredIdentity): string {
  const seen = new Set<string>();
  const trunk = nodeBranch(identity.id, `profile ${bold(identity.id)}`, identity, seen);
  // What an unmerge or an erasure left without a way to the root must be seen all the same.
  const nodes = [
    ...identity.identifiers.map(({ nodeId }) => nodeId),
    ...identity.merges.flatMap((merge) => merge.nodes),
  ];
  const strays = nodes.flatMap((id) =>
    seen.has(id) ? [] : [nodeBranch(id, `profile ${id}, joined by no request on record`, identity, seen)],
  );
  const refusals = identity.refusals.map(({ type, value, reason, traceId, at, count }) => ({
    label:
      `${type} ${shown(value)} was not joined: ${REFUSAL_REASONS[reason]}` +
      ` ${dim(`(${countOf(count, 'time')}, first at ${localTime(at)} by ${traceId})`)}`,
    branches: [],
  }));
  const branches = [...trunk.branches, ...strays, ...refusals];
  return [`  ${trunk.label}`, ...draw(branches, '  ')].join('\n');
}

function nodeBranch(id: string, label: string, identity: StoredIdentity, seen: Set<string>): Branch {
  seen.add(id);
  const branches: Branch[] = identity.identifiers
    .filter(({ nodeId }) => nodeId === id)
    .map(({ type, value, at, traceId }) => {
      return { label: `${type} ${shown(value)} ${dim(`since ${localTime(at)} by ${traceId}`)}`, branches: [] };
    });
  for (const { nodes, via, at, traceId } of identity.merges) {
    const other = nodes.includes(id) ? nodes.find((node) => !seen.has(node)) : undefined;
    if (other === undefined) continue;
    const by = dim(`at ${localTime(at)} by ${traceId}`);
    const merge = `merged with ${bold(other)} through ${via.type} ${shown(via.value)} ${by}`;
    branches.push(nodeBranch(other, merge, identity, seen));
  }
  return { label, branches };
}

function shown(value: string): string {
  return printable(JSON.stringify(value));
}

function draw(branches: readonly Branch[], indent: string): string[] {
  return branches.flatMap(({ label, branches: below }, index) => {
    const isLast = index === branches.length - 1;
    return [`${indent}${isLast ? '└─' : '├─'} ${label}`, ...draw(below, `${indent}${isLast ? '   ' : '│  '}`)];
  });
}
