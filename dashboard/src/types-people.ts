/**
 * What the server answers about people: profiles, where each value came from, and why a profile is one person. Names
 * are those of the HTTP API. Import them from `types.ts`.
 */

export const IDENTIFIER_TYPES = ['user_id', 'email', 'phone_number', 'anon_id'] as const;
export type IdentifierType = (typeof IDENTIFIER_TYPES)[number];

export interface Told {
  readonly value: unknown;
  readonly trace_id: string;
  readonly received_at: string;
}

export interface Provenance {
  readonly profile_fields: Readonly<Record<string, Told>>;
  readonly user_properties: Readonly<Record<string, Told>>;
}

export interface Profile {
  readonly id: string;
  readonly merged_ids: readonly string[];
  readonly identifiers: Readonly<Record<IdentifierType, readonly string[]>>;
  readonly profile_fields: Readonly<Record<string, unknown>>;
  readonly user_properties: Readonly<Record<string, unknown>>;
  readonly first_seen: string;
  readonly last_seen: string;
  readonly event_count: number;
  readonly provenance?: Provenance;
}

export interface ProfileMatch {
  readonly matched: readonly string[];
  readonly profile: Profile;
  /** With `include=last_event`. */
  readonly last_event_at?: string | null;
}

export interface ProfileSearch {
  readonly profiles: readonly ProfileMatch[];
  readonly next_cursor: string | null;
  /** The search did not get through: the cursor goes on with it. */
  readonly is_partial: boolean;
}

/** What to call a person, with `include=person`. */
export interface Person {
  readonly id: string;
  readonly name: string | null;
  readonly identifiers: Profile['identifiers'];
}

export interface Via {
  readonly type: IdentifierType;
  readonly value: string;
}

export interface LinkedIdentifier {
  readonly type: IdentifierType;
  readonly value: string;
  /** Id of the node that it belongs to, for ever. */
  readonly node: string;
  readonly first_trace_id: string;
  readonly userIndex: number;
  readonly first_seen: string;
}

export interface Merge {
  readonly from: string;
  readonly into: string;
  readonly via: Via;
  /** The two nodes that the request joined; `via` belongs to the first. */
  readonly nodes: readonly [string, string];
  readonly trace_id: string;
  readonly userIndex: number;
  readonly at: string;
}

export type RefusalReason = 'other_user_id' | 'limit' | 'publishable_key' | 'cannot_link';

export interface Refusal {
  readonly type: IdentifierType;
  readonly value: string;
  readonly reason: RefusalReason;
  readonly trace_id: string;
  readonly userIndex: number;
  readonly at: string;
  readonly count: number;
}

export interface ChainStep {
  readonly kind: 'link' | 'merge';
  readonly type?: IdentifierType;
  readonly value?: string;
  readonly node?: string;
  readonly from?: string;
  readonly into?: string;
  readonly via?: Via;
  readonly nodes?: readonly [string, string];
  readonly trace_id: string;
  readonly userIndex: number;
  readonly at: string;
  readonly text: string;
}

export interface Identity {
  readonly identifiers: readonly LinkedIdentifier[];
  readonly merges: readonly Merge[];
  readonly refusals: readonly Refusal[];
  readonly chain?: readonly ChainStep[];
}

export interface Unmerged {
  readonly trace_id: string;
  readonly undone: number;
  readonly profile_ids: readonly string[];
}

export interface Erased {
  readonly trace_id: string;
}

/** How many people there are. */
export interface ProfileCount {
  readonly profiles: number;
}
