/**
 * What the server responds with, as /openapi.json describes it. Generated: change the schema of the route, then run
 * `npm run generate:api-types`. Values that clients chose (properties, payloads) are `unknown`: show them with `Json` or
 * as text, never as anything else. Numbers among them that a double cannot hold are `ExactNumber` (exact-json.ts).
 */

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * IngestRequest
         * @description A batch of users with their events.
         */
        readonly IngestRequest: {
            /** @description The users of this request. */
            readonly users: readonly components["schemas"]["User"][];
            /** @description How many events the client had to drop since the last request that reported them. Counted in `GET /ledger`; any other value is ignored. */
            readonly dropped_by_client?: number;
        };
        /**
         * User
         * @description One person and what that person did. Each user is validated independently of the others.
         */
        readonly User: {
            readonly identifiers: components["schemas"]["Identifiers"];
            readonly user_properties?: components["schemas"]["UserProperties"] | null;
            /** @description At least one event. */
            readonly events: readonly components["schemas"]["Event"][];
        };
        /**
         * Identifiers
         * @description Who the person is: at least one of `user_id`, `email`, `phone_number` and `anon_id`, neither null nor blank. Any other key is a profile field.
         */
        readonly Identifiers: ({
            /**
             * @description Your own id of the person.
             * @example u-1042
             */
            readonly user_id?: string | null;
            /**
             * @description E-mail address.
             * @example ada@example.com
             */
            readonly email?: string | null;
            /**
             * @description Phone number, preferably with the country code.
             * @example +351210000000
             */
            readonly phone_number?: string | null;
            /**
             * @description Id of a browser or device before the person is known.
             * @example anon-7f3c
             */
            readonly anon_id?: string | null;
        } & {
            readonly [key: string]: string | null;
        }) | {
            readonly user_id: string;
        } | {
            readonly email: string;
        } | {
            readonly phone_number: string;
        } | {
            readonly anon_id: string;
        };
        /**
         * UserProperties
         * @description Attributes of the person, kept on the profile. The last write wins, key by key; keys that are not sent stay as they are.
         */
        readonly UserProperties: {
            readonly [key: string]: unknown;
        };
        /**
         * Event
         * @description One thing that happened. Any other key is a custom property of the event.
         */
        readonly Event: {
            /**
             * @description What happened. Not blank.
             * @example order_completed
             */
            readonly event_name: string;
            /**
             * @description When it happened: an ISO 8601 calendar date or date-time, extended or basic form, with `Z`, an offset, or neither for UTC. Without it, the time of receipt counts.
             * @example 2026-11-14T09:30:00Z
             */
            readonly timestamp?: string | null;
            /**
             * @description Revenue tied to the event, within the range of a double.
             * @example 49.9
             */
            readonly revenue?: number | null;
            /**
             * @description Numeric value of the event, within the range of a double.
             * @example 3
             */
            readonly event_value?: number | null;
            /** @description Your own id of the event: the same id again within 7 days is stored once. A plain `event_id` is a custom property. */
            readonly $event_id?: string | null;
        } & {
            readonly [key: string]: unknown;
        };
        /**
         * IngestAccepted
         * @description At least one user was accepted. Look at `users_rejected` and `errors` too.
         */
        readonly IngestAccepted: {
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description Users that are valid, and durable. */
            readonly users_accepted: number;
            /** @description Users that are not valid. They are kept with the reason (`GET /rejections`) and are not processed. */
            readonly users_rejected: number;
            /** @description One entry per rejected user, in order of `userIndex`. */
            readonly errors: readonly components["schemas"]["UserError"][];
        };
        /**
         * UserError
         * @description Why one user was rejected.
         */
        readonly UserError: {
            /** @description Position of the user in `users`, counted from 0. */
            readonly userIndex: number;
            /** @description The first rule that the user breaks. */
            readonly message: string;
        };
        /**
         * CheckResponse
         * @description What would happen.
         */
        readonly CheckResponse: {
            /** @description The response of `POST /ingest/events`. */
            readonly would_respond: {
                /**
                 * @description The status.
                 * @enum {integer}
                 */
                readonly status: 202 | 400;
                /** @description The body. No trace with its `trace_id` exists. */
                readonly body: {
                    readonly [key: string]: unknown;
                };
            };
            /** @description Your accepted requests that are not processed yet, and so are not considered here. At most the next 1,000 of a log partition are counted. Only with a secret key. */
            readonly pending_requests?: number;
            /** @description The version of the tracking plan that `violations` refers to; null without one. */
            readonly plan_version?: number | null;
            /** @description In order. Only with a secret key, and if the body can be read as a request. */
            readonly users?: readonly components["schemas"]["PredictedUser"][];
        };
        /**
         * PredictedUser
         * @description What would happen to one user of the request.
         */
        readonly PredictedUser: {
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * @description As the 202 would say.
             * @enum {string}
             */
            readonly status: "accepted" | "rejected";
            /** @description The profile after the whole request. An existing profile, or `new:` and the index of the user of this request that would create it. Null if nothing would be stored. */
            readonly profile_id: string | null;
            /** @description The profile does not exist yet. */
            readonly is_new: boolean;
            /** @description Events that would be stored. */
            readonly events: number;
            /** @description Events that are stored already, by `$event_id`. */
            readonly duplicate_events: number;
            /** @description The trace that used this `Idempotency-Key` with the same body; then nothing of this user would be stored. */
            readonly duplicate_of: string | null;
            /** @description Identifiers that would be linked to the profile. */
            readonly new_identifiers: readonly {
                /**
                 * @description Kind of identifier.
                 * @enum {string}
                 */
                readonly type: "user_id" | "email" | "phone_number" | "anon_id";
                /** @description As the request has it. */
                readonly value: string;
            }[];
            /** @description Merges that this user would cause, in order. */
            readonly merges: readonly {
                /** @description What would be merged away. An existing profile, or `new:` and the index of the user of this request that would create it. */
                readonly from: string;
                /** @description What would remain, in the same form. */
                readonly into: string;
                /** @description The identifier that joins them. */
                readonly via: {
                    /**
                     * @description Kind of identifier.
                     * @enum {string}
                     */
                    readonly type: "user_id" | "email" | "phone_number" | "anon_id";
                    /** @description As the request has it. */
                    readonly value: string;
                };
            }[];
            /** @description Identifiers that would not be linked, and why. */
            readonly refusals: readonly {
                /**
                 * @description Kind of identifier.
                 * @enum {string}
                 */
                readonly type: "user_id" | "email" | "phone_number" | "anon_id";
                /** @description As the request has it. */
                readonly value: string;
                /**
                 * @description As in `GET /profiles/{id}/identity`.
                 * @enum {string}
                 */
                readonly reason: "other_user_id" | "limit" | "publishable_key" | "cannot_link";
                /**
                 * @description Number of the rule in docs/identity.md.
                 * @enum {integer}
                 */
                readonly rule: 6 | 7 | 8 | 16;
                /** @description The same for people. */
                readonly message: string;
            }[];
            /** @description Properties of the profile that would have a different value after this user, including those of merged profiles. */
            readonly property_changes: readonly {
                /**
                 * @description Where the property is on the profile.
                 * @enum {string}
                 */
                readonly kind: "profile_fields" | "user_properties";
                /** @description Of the property. */
                readonly name: string;
                /** @description What the profile has before this user; null if it is not set. */
                readonly before: unknown;
                /** @description What it would have; null if it would be deleted. */
                readonly after: unknown;
            }[];
            /** @description How many more there are: at most 1 MB of changes is listed. */
            readonly property_changes_omitted: number;
            /** @description As the trace would show them, except those of the tracking plan: see `violations`. */
            readonly warnings: readonly string[];
            /** @description How the user violates the tracking plan, in every mode. */
            readonly violations: readonly components["schemas"]["PredictedViolation"][];
            /** @description Why the user would be rejected; null if it would not. */
            readonly message: string | null;
        };
        /**
         * PredictedViolation
         * @description How the user violates the tracking plan.
         */
        readonly PredictedViolation: {
            /** @description Where, such as `events[0].total`. */
            readonly path: string;
            /** @description What is wrong. */
            readonly message: string;
            /** @description Of the event; null for user_properties and profile fields. */
            readonly event_name: string | null;
            /**
             * @description `enforce`: the user would be rejected.
             * @enum {string}
             */
            readonly mode: "warn" | "enforce";
        };
        /**
         * SegmentAccepted
         * @description At least one message was accepted, and is durable.
         */
        readonly SegmentAccepted: {
            /** @constant */
            readonly success: true;
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description Messages that are valid, and durable. */
            readonly accepted: number;
            /** @description Messages that are not valid. They are kept with the reason (`GET /rejections`). */
            readonly rejected: number;
            /** @description One entry per rejected message, in order of `index`. */
            readonly errors: readonly components["schemas"]["SegmentMessageError"][];
        };
        /**
         * SegmentMessageError
         * @description Why one message was rejected.
         */
        readonly SegmentMessageError: {
            /** @description Position of the message in `batch`, counted from 0. */
            readonly index: number;
            /** @description The first rule that the message breaks. */
            readonly message: string;
        };
        /**
         * SegmentFailure
         * @description Nothing was accepted.
         */
        readonly SegmentFailure: {
            /** @constant */
            readonly success: false;
            /** @description The status in words. */
            readonly error: string;
            /** @description The kind of error, for programs. */
            readonly code: string;
            /** @description What is wrong and where, for a person. */
            readonly message: string;
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description 0, where every message is invalid. */
            readonly accepted?: number;
            /** @description All messages, where every message is invalid. */
            readonly rejected?: number;
            /** @description One entry per rejected message, in order of `index`. */
            readonly errors?: readonly components["schemas"]["SegmentMessageError"][];
        };
        /**
         * SegmentDiscarded
         * @description Received, and not kept.
         */
        readonly SegmentDiscarded: {
            /** @constant */
            readonly success: true;
        };
        /**
         * Profile
         * @description One person, as far as is known.
         */
        readonly Profile: {
            /**
             * Format: uuid
             * @description The id of the profile. It stays the same when others are merged into it.
             */
            readonly id: string;
            /** @description Ids of profiles that were merged into it. They still find this profile. */
            readonly merged_ids: readonly string[];
            /** @description What the person is known by. */
            readonly identifiers: {
                /** @description As first sent, oldest first. */
                readonly user_id: readonly string[];
                /** @description As first sent, oldest first. */
                readonly email: readonly string[];
                /** @description As first sent, oldest first. */
                readonly phone_number: readonly string[];
                /** @description As first sent, oldest first. */
                readonly anon_id: readonly string[];
            };
            /** @description Profile fields, the newest of each. */
            readonly profile_fields: {
                readonly [key: string]: string;
            };
            /** @description Attributes, the newest of each. Numbers keep their value, however many digits they have. */
            readonly user_properties: {
                readonly [key: string]: unknown;
            };
            /**
             * Format: date-time
             * @description When the first request about the person was received.
             */
            readonly first_seen: string;
            /**
             * Format: date-time
             * @description When the latest request about the person was received.
             */
            readonly last_seen: string;
            /** @description Events of this profile. */
            readonly event_count: number;
            readonly provenance?: components["schemas"]["Provenance"];
        };
        /**
         * Provenance
         * @description With `provenance=1`: which request set each value.
         */
        readonly Provenance: {
            /** @description By name. */
            readonly profile_fields: {
                readonly [key: string]: components["schemas"]["PropertySource"];
            };
            /** @description By name. */
            readonly user_properties: {
                readonly [key: string]: components["schemas"]["PropertySource"];
            };
        };
        /**
         * PropertySource
         * @description A value, and the request that set it.
         */
        readonly PropertySource: {
            /** @description The value, as on the profile. */
            readonly value: unknown;
            /**
             * Format: uuid
             * @description The request that set it.
             */
            readonly trace_id: string;
            /**
             * Format: date-time
             * @description When the server received that request.
             */
            readonly received_at: string;
        };
        /**
         * ProfileMatches
         * @description People that were found.
         */
        readonly ProfileMatches: {
            /** @description Complete matches, then the others, newest first. Each profile once. */
            readonly profiles: readonly components["schemas"]["ProfileMatch"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
            /** @description Whether the page ended before its limit because the search took too long: not everyone was searched yet, and `next_cursor` continues. */
            readonly is_partial: boolean;
        };
        /**
         * ProfileMatch
         * @description A person that was found.
         */
        readonly ProfileMatch: {
            /** @description What matched the value: types of identifiers, or `name`; `id` if it is the id of the profile. Empty without a value. */
            readonly matched: readonly ("user_id" | "email" | "phone_number" | "anon_id" | "name" | "id")[];
            readonly profile: components["schemas"]["Profile"];
            /** @description With `include=last_event`: when its newest event happened. */
            readonly last_event_at?: string | null;
        };
        /**
         * ProfileCount
         * @description How many people there are.
         */
        readonly ProfileCount: {
            /** @description The number of profiles. */
            readonly profiles: number;
        };
        /**
         * Erased
         * @description The profile is gone.
         */
        readonly Erased: {
            /**
             * Format: uuid
             * @description The id of this erasure, as in the audit log.
             */
            readonly trace_id: string;
            readonly personal?: components["schemas"]["PersonalData"];
            /** @description Present if requests from before the erasure are still waiting. */
            readonly warning?: string;
        };
        /**
         * PersonalData
         * @description What the tracking plan marks as personal.
         */
        readonly PersonalData: {
            /** @description Names of properties. */
            readonly profile_fields: readonly string[];
            /** @description Names of properties. */
            readonly user_properties: readonly string[];
            /** @description By event name; events without any are left out. */
            readonly events: {
                readonly [key: string]: readonly string[];
            };
        };
        /**
         * EventPage
         * @description Events, newest first by `timestamp`.
         */
        readonly EventPage: {
            /** @description Newest first. */
            readonly events: readonly components["schemas"]["StoredEvent"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * StoredEvent
         * @description One thing that happened.
         */
        readonly StoredEvent: {
            /** @description The id of the event: trace_id, userIndex and position among the events of the user. */
            readonly id: string;
            /** @description What happened. */
            readonly event_name: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            readonly timestamp: string;
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly received_at: string;
            /** @description As sent; null without one. */
            readonly revenue: number | null;
            /** @description As sent; null without one. */
            readonly event_value: number | null;
            /** @description Custom properties. Numbers keep their value, however many digits they have. */
            readonly properties: {
                readonly [key: string]: unknown;
            };
            /** @description The profile that it belongs to now; null when all identifiers of the user were junk. */
            readonly profile_id: string | null;
            /**
             * Format: uuid
             * @description The request that sent it.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /** @description The API key of its request. */
            readonly key_id: string;
            /** @description With `include=person`: the name and identifiers of the person; null without a profile. */
            readonly person?: components["schemas"]["Person"] | null;
        };
        /**
         * Person
         * @description The name and identifiers of a person.
         */
        readonly Person: {
            /**
             * Format: uuid
             * @description The profile as it is now.
             */
            readonly id: string;
            /** @description `first_name` and `last_name` of its profile fields, else `name` or `full_name`; null without any. */
            readonly name: string | null;
            /** @description The oldest three of each type. */
            readonly identifiers: {
                /** @description As first sent, oldest first. */
                readonly user_id: readonly string[];
                /** @description As first sent, oldest first. */
                readonly email: readonly string[];
                /** @description As first sent, oldest first. */
                readonly phone_number: readonly string[];
                /** @description As first sent, oldest first. */
                readonly anon_id: readonly string[];
            };
        };
        /**
         * Identity
         * @description Why this is one person.
         */
        readonly Identity: {
            /** @description Every identifier, and where it came from. */
            readonly identifiers: readonly components["schemas"]["LinkedIdentifier"][];
            /** @description Every merge, and its cause. */
            readonly merges: readonly components["schemas"]["Merge"][];
            /** @description What was not linked or merged when a user went to this profile, and why not. */
            readonly refusals: readonly components["schemas"]["Refusal"][];
            /** @description With `from` and `to`: the chain from one to the other. */
            readonly chain?: readonly components["schemas"]["ChainStep"][];
        };
        /**
         * LinkedIdentifier
         * @description An identifier, and the request that introduced it.
         */
        readonly LinkedIdentifier: {
            /**
             * @description Kind of identifier.
             * @enum {string}
             */
            readonly type: "user_id" | "email" | "phone_number" | "anon_id";
            /** @description As the client first wrote it. */
            readonly value: string;
            /**
             * Format: uuid
             * @description Where it belongs, permanently: see `nodes` of the merges.
             */
            readonly node: string;
            /**
             * Format: uuid
             * @description The first request with it.
             */
            readonly first_trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * Format: date-time
             * @description When the server received that request.
             */
            readonly first_seen: string;
        };
        /**
         * Merge
         * @description A merge, and its cause.
         */
        readonly Merge: {
            /**
             * Format: uuid
             * @description The merged profile.
             */
            readonly from: string;
            /**
             * Format: uuid
             * @description The surviving profile.
             */
            readonly into: string;
            /** @description The identifier that led from one to the other. */
            readonly via: {
                /**
                 * @description Kind of identifier.
                 * @enum {string}
                 */
                readonly type: "user_id" | "email" | "phone_number" | "anon_id";
                /** @description As the client wrote it. */
                readonly value: string;
            };
            /** @description Of a merge: the node that `via` belongs to, then the node it was joined with. */
            readonly nodes: readonly [
                string,
                string
            ];
            /**
             * Format: uuid
             * @description The request that caused it. Send it to unmerge.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly at: string;
        };
        /**
         * Refusal
         * @description A link that was refused.
         */
        readonly Refusal: {
            /**
             * @description Kind of identifier.
             * @enum {string}
             */
            readonly type: "user_id" | "email" | "phone_number" | "anon_id";
            /** @description The identifier that was not linked. */
            readonly value: string;
            /**
             * @description `other_user_id`: it belongs to a profile with another user_id; `limit`: the profile has as many of these as a profile may have; `publishable_key`: a publishable key may not join known people, nor add identifiers to them; `cannot_link`: an unmerge separated these two people
             * @enum {string}
             */
            readonly reason: "other_user_id" | "limit" | "publishable_key" | "cannot_link";
            /**
             * Format: uuid
             * @description The first request that was refused for this reason.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly at: string;
            /** @description How often it happened. */
            readonly count: number;
        };
        /**
         * ChainStep
         * @description One step of the chain from one identifier to another.
         */
        readonly ChainStep: {
            /**
             * @description `link`: an identifier was seen for the first time. `merge`: two profiles became one.
             * @enum {string}
             */
            readonly kind: "link" | "merge";
            /**
             * @description Kind of identifier.
             * @enum {string}
             */
            readonly type?: "user_id" | "email" | "phone_number" | "anon_id";
            /** @description Of a link: the identifier. */
            readonly value?: string;
            /**
             * Format: uuid
             * @description Of a link: where the identifier belongs.
             */
            readonly node?: string;
            /**
             * Format: uuid
             * @description Of a merge: the merged profile.
             */
            readonly from?: string;
            /**
             * Format: uuid
             * @description Of a merge: the surviving profile.
             */
            readonly into?: string;
            /** @description The identifier that led from one to the other. */
            readonly via?: {
                /**
                 * @description Kind of identifier.
                 * @enum {string}
                 */
                readonly type: "user_id" | "email" | "phone_number" | "anon_id";
                /** @description As the client wrote it. */
                readonly value: string;
            };
            /** @description Of a merge: the node that `via` belongs to, then the node it was joined with. */
            readonly nodes?: readonly [
                string,
                string
            ];
            /**
             * Format: uuid
             * @description The request that did it.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly at: string;
            /** @description The step as a sentence. */
            readonly text: string;
        };
        /**
         * UnmergeRequest
         * @description The request whose merges to undo, from `merges` of the identity.
         */
        readonly UnmergeRequest: {
            /**
             * Format: uuid
             * @description The request whose merges are to be undone.
             */
            readonly trace_id: string;
        };
        /**
         * Unmerged
         * @description The result of an unmerge.
         */
        readonly Unmerged: {
            /**
             * Format: uuid
             * @description The id of this unmerge, as in the audit log.
             */
            readonly trace_id: string;
            /** @description Merges that were undone. */
            readonly undone: number;
            /** @description The resulting profiles, oldest first. */
            readonly profile_ids: readonly string[];
        };
        /**
         * Arrivals
         * @description With `after`: events in order of arrival.
         */
        readonly Arrivals: {
            /** @description Oldest first, in order of arrival. */
            readonly events: readonly components["schemas"]["StoredEvent"][];
            /** @description Send it as `after` for what comes next. */
            readonly last: string;
        };
        /**
         * Counts
         * @description Events by time.
         */
        readonly Counts: {
            /** @description Buckets without events are left out. */
            readonly buckets: readonly components["schemas"]["CountBucket"][];
        };
        /**
         * CountBucket
         * @description The events of one minute, hour or day.
         */
        readonly CountBucket: {
            /**
             * Format: date-time
             * @description Start of the bucket, UTC.
             */
            readonly start: string;
            /** @description With `group_by=event_name`. */
            readonly event_name?: string;
            /** @description Events in the whole bucket. */
            readonly events: number;
            /** @description Sums of their revenue, one for each currency; empty when no event has revenue. */
            readonly revenue: readonly components["schemas"]["CurrencySum"][];
        };
        /**
         * CurrencySum
         * @description Revenue in one currency.
         */
        readonly CurrencySum: {
            /** @description The event property `currency`: three letters, in capitals. `other` for all that is not three letters, null for revenue without a currency. */
            readonly currency: string | null;
            /** @description Events with revenue in this currency. */
            readonly events: number;
            /** @description Sum of their revenue, exact before it is rounded to a double; null for `other`, because amounts of different currencies are never added. */
            readonly revenue: number | null;
        };
        /**
         * TracePage
         * @description The most recent requests.
         */
        readonly TracePage: {
            /** @description Newest first. A page may be short and still have a cursor. */
            readonly traces: readonly components["schemas"]["TraceSummary"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * TraceSummary
         * @description What happened to a request, in numbers.
         */
        readonly TraceSummary: {
            /**
             * Format: uuid
             * @description The request.
             */
            readonly trace_id: string;
            /**
             * @description `pending` from the 202 on, `processed` once it can be read back.
             * @enum {string}
             */
            readonly status: "pending" | "processed";
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly received_at: string;
            /** @description When it was processed; null while pending. */
            readonly processed_at: string | null;
            /** @description As the 202 said, and those that were resubmitted since. */
            readonly users_accepted: number;
            /** @description As the 202 said, without those that were resubmitted since. */
            readonly users_rejected: number;
            /** @description The earlier request with the same `Idempotency-Key` and body. Of this request, only users that the earlier one rejected and this one accepts are stored. Null if it is not a duplicate. */
            readonly duplicate_of: string | null;
            /** @description Its API key; null for a dead letter that is not kept any more. */
            readonly key_id: string | null;
            /** @description Events that were stored, or that wait to be. */
            readonly events: number;
        };
        /**
         * Trace
         * @description What happened to a request.
         */
        readonly Trace: {
            /**
             * Format: uuid
             * @description The request.
             */
            readonly trace_id: string;
            /**
             * @description `pending` from the 202 on, `processed` once it can be read back.
             * @enum {string}
             */
            readonly status: "pending" | "processed";
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly received_at: string;
            /** @description When it was processed; null while pending. */
            readonly processed_at: string | null;
            /** @description As the 202 said, and those that were resubmitted since. */
            readonly users_accepted: number;
            /** @description As the 202 said, without those that were resubmitted since. */
            readonly users_rejected: number;
            /** @description The earlier request with the same `Idempotency-Key` and body. Of this request, only users that the earlier one rejected and this one accepts are stored. Null if it is not a duplicate. */
            readonly duplicate_of: string | null;
            /** @description Its API key; null for a dead letter that is not kept any more. */
            readonly key_id: string | null;
            /**
             * @description `segment` if it was sent in the format of Segment’s SDKs, under `/ingest/v1/`.
             * @enum {string}
             */
            readonly format: "sluice" | "segment";
            /**
             * Format: date-time
             * @description When it, or the first of its users, became a dead letter; absent if none is one. Such a request stays `pending`.
             */
            readonly failed_at?: string;
            /** @description What happened to each user. */
            readonly users: readonly components["schemas"]["TracedUser"][];
        };
        /**
         * TracedUser
         * @description What happened to one user of a request.
         */
        readonly TracedUser: {
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * @description As the 202 said; `accepted` once a rejected user was fixed and resubmitted.
             * @enum {string}
             */
            readonly status: "accepted" | "rejected";
            /** @description The profile as it is now; null while there is none. */
            readonly profile_id: string | null;
            /** @description Events that are stored. */
            readonly events: number;
            /** @description Events that were stored before, by `$event_id`. */
            readonly duplicate_events?: number;
            /** @description Merges that this user caused and that were not undone. */
            readonly merged: readonly {
                /**
                 * Format: uuid
                 * @description The merged profile.
                 */
                readonly from: string;
                /**
                 * Format: uuid
                 * @description The surviving profile.
                 */
                readonly into: string;
            }[];
            /** @description Notes that you may want to act on. */
            readonly warnings: readonly string[];
            /** @description Why the user was rejected; null if it was not. */
            readonly message: string | null;
            readonly resubmitted?: components["schemas"]["Resubmission"];
            /** @description With `include=person`: the name and identifiers of the person; null without a profile. */
            readonly person?: components["schemas"]["Person"] | null;
        };
        /**
         * Resubmission
         * @description How a rejected user was fixed and resubmitted.
         */
        readonly Resubmission: {
            /**
             * Format: date-time
             * @description When it was stored.
             */
            readonly at: string;
            /** @description The key or member that did it: `key_id` or `member_id`. */
            readonly by: unknown;
            /**
             * Format: uuid
             * @description The job.
             */
            readonly job_id: string;
            /** @description What was changed, without values, since these may be personal data. At most 20. */
            readonly patch: readonly {
                /** @description The operation. */
                readonly op: string;
                /** @description What it changed. */
                readonly path: string;
                /** @description From where. */
                readonly from?: string;
            }[];
        };
        /**
         * RejectionPage
         * @description Invalid users.
         */
        readonly RejectionPage: {
            /** @description Newest first. */
            readonly rejections: readonly components["schemas"]["Rejection"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * Rejection
         * @description One invalid user.
         */
        readonly Rejection: {
            /** @description `<trace_id>.<userIndex>`. `POST /rejections/{id}/resubmit` takes it. */
            readonly id: string;
            /**
             * Format: uuid
             * @description The request.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly received_at: string;
            /** @description The first rule that the user breaks. */
            readonly message: string;
            /** @description The message without indexes. */
            readonly reason: string;
            /** @description The user as it was sent; its beginning, as a text, if it was cut. */
            readonly payload: unknown;
            /** @description Whether the payload is not what was sent: it was too large to keep whole, or not kept because a person was erased while the request was waiting. */
            readonly payload_is_cut: boolean;
            /** @description The API key of its request. */
            readonly key_id: string;
            /**
             * @description `segment` if the payload is a message of Segment’s SDKs.
             * @enum {string}
             */
            readonly format: "sluice" | "segment";
            /** @description The names of its events, each once, as far as they have one; none if the user is too large to be examined. */
            readonly event_names: readonly string[];
            /** @description When it was fixed and resubmitted, or accepted in a retry of its request; null if it was not. */
            readonly resubmitted_at: string | null;
            /** @description The trace_id of the retry in which it was accepted. */
            readonly accepted_by: string | null;
        };
        /**
         * RejectionReasons
         * @description Why users were rejected, and how often.
         */
        readonly RejectionReasons: {
            /** @description The most frequent first. */
            readonly reasons: readonly components["schemas"]["RejectionReason"][];
        };
        /**
         * RejectionReason
         * @description One reason, and how often it occurred.
         */
        readonly RejectionReason: {
            /** @description The message without indexes. `GET /rejections` takes it. */
            readonly reason: string;
            /** @description Rejected users that are kept. */
            readonly users: number;
            /** @description Those of them that were fixed and resubmitted, or accepted in a retry. */
            readonly resubmitted: number;
            /**
             * Format: date-time
             * @description When the server received the newest of them.
             */
            readonly last_at: string;
            /**
             * Format: uuid
             * @description The request of the newest.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
        };
        /**
         * CurrentPlan
         * @description A tracking plan.
         */
        readonly CurrentPlan: {
            /** @description Increases with each push; 0 if there is no plan. */
            readonly version: number;
            /** @description When it was pushed. */
            readonly created_at: string | null;
            /** @description The id of the key or member that pushed it. */
            readonly created_by: string | null;
            /** @description The plan, as `PUT /plan` takes it. */
            readonly plan: unknown;
        };
        /**
         * Plan
         * @description A tracking plan: the events you expect and their properties.
         */
        readonly Plan: {
            /** @description The version that was edited: the push is refused if that is not the newest. */
            readonly version?: number;
            /**
             * @description What happens to events that are not in the plan. Default: `allow`.
             * @enum {string}
             */
            readonly unplanned_events?: "allow" | "warn" | "reject";
            /** @description By event name. */
            readonly events?: {
                readonly [key: string]: components["schemas"]["PlannedProperties"];
            };
            readonly user_properties?: components["schemas"]["PlannedProperties"];
            readonly profile_fields?: components["schemas"]["PlannedProperties"];
        };
        /**
         * PlannedProperties
         * @description A schema of properties, and the mode in which it is checked.
         */
        readonly PlannedProperties: {
            /**
             * @description `off`: not checked. `warn`: accepted; violations are counted and on the trace. `enforce`: the user is rejected. Default: `warn`.
             * @enum {string}
             */
            readonly mode?: "off" | "warn" | "enforce";
            /** @description For people. */
            readonly description?: string;
            /** @description A JSON Schema (2020-12) of the object that holds the properties. `"x-personal": true` marks personal data. */
            readonly schema?: unknown;
        };
        /**
         * PushedPlan
         * @description The result of a push.
         */
        readonly PushedPlan: {
            /** @description Increases with each push; 0 if there is no plan. */
            readonly version: number;
            /** @description When it was pushed. */
            readonly created_at: string | null;
            /** @description The id of the key or member that pushed it. */
            readonly created_by: string | null;
            /** @description False if the plan has not changed. */
            readonly is_new: boolean;
        };
        /**
         * PlanVersions
         * @description What was pushed.
         */
        readonly PlanVersions: {
            /** @description Newest first; the last 100 are kept. */
            readonly versions: readonly components["schemas"]["PlanVersion"][];
        };
        /**
         * PlanVersion
         * @description One version of the plan.
         */
        readonly PlanVersion: {
            /** @description Increases with each push. */
            readonly version: number;
            /**
             * Format: date-time
             * @description When it was pushed.
             */
            readonly created_at: string;
            /** @description The id of the key or member that pushed it. */
            readonly created_by: string;
            /** @description Whether something in it is enforced. */
            readonly enforces: boolean;
            /** @description Whether something in it warns. */
            readonly warns: boolean;
        };
        /**
         * PlanViolations
         * @description How events violate the plan.
         */
        readonly PlanViolations: {
            /** @description The most frequent first. */
            readonly violations: readonly components["schemas"]["PlanViolation"][];
        };
        /**
         * PlanViolation
         * @description One way in which events violate the plan.
         */
        readonly PlanViolation: {
            /** @description The version of the plan that they violate. */
            readonly version: number;
            /** @description The event; null for user properties and profile fields. */
            readonly event_name: string | null;
            /** @description Where, without indexes: `items[].price`. */
            readonly path: string;
            /** @description What is wrong with it. */
            readonly message: string;
            /** @description How often: once per occurrence in each stored event. */
            readonly count: number;
            /**
             * Format: date-time
             * @description When the server received the first request with it.
             */
            readonly first_at: string;
            /**
             * Format: date-time
             * @description When the server received the newest request with it.
             */
            readonly last_at: string;
            /**
             * Format: uuid
             * @description A request with it; its trace shows the warning.
             */
            readonly trace_id: string;
        };
        /**
         * ResubmitUser
         * @description A rejected user, fixed by hand.
         */
        readonly ResubmitUser: {
            /** @description The whole user, corrected: as in `users` of `POST /ingest/events`. For a user sent by a Segment SDK, the corrected message works too. */
            readonly user: unknown;
        };
        /**
         * Job
         * @description Work on many rejected users or dead letters.
         */
        readonly Job: {
            /**
             * Format: uuid
             * @description The `trace_id` of the call that created it.
             */
            readonly id: string;
            /**
             * @description `resubmit` for rejected users, `retry` for dead letters.
             * @enum {string}
             */
            readonly kind: "resubmit" | "retry";
            /**
             * @description `running` until all are processed, unless it was stopped.
             * @enum {string}
             */
            readonly status: "running" | "stopped" | "done";
            /**
             * Format: date-time
             * @description When it was made.
             */
            readonly created_at: string;
            /** @description When it was done. */
            readonly finished_at: string | null;
            /** @description The key or member that created it: `key_id` or `member_id`. */
            readonly by: unknown;
            /** @description Which ones; `id` for a single one. */
            readonly filter: unknown;
            /** @description The JSON Patch; once the job is done, without its values. Null for a user that was fixed by hand, and for dead letters. */
            readonly patch: unknown;
            /** @description How many there were when it was created. */
            readonly matched: number;
            /** @description Accepted now. Their traces show what happened to each. */
            readonly resubmitted: number;
            /** @description Still not valid, or the patch does not apply to them. */
            readonly still_rejected: number;
            /** @description Resubmitted by another call in the meantime. */
            readonly already: number;
            /** @description Too large to have been kept whole: there is nothing to patch. */
            readonly cut: number;
            /** @description Could not be processed. Those that were rejected stay rejected. */
            readonly failed: number;
            /** @description Not processed yet. */
            readonly left: number;
            /** @description Never processed: retention or an erasure removed them first, or ended the job. */
            readonly gone: number;
            /** @description The first 50 that are still rejected or failed. */
            readonly problems: readonly components["schemas"]["JobProblem"][];
        };
        /**
         * JobProblem
         * @description One that was not stored, and why.
         */
        readonly JobProblem: {
            /** @description The rejection or the dead letter. */
            readonly id: string;
            /** @description Why. */
            readonly message: string;
        };
        /**
         * ResubmitRequest
         * @description Which rejected users to fix, and how.
         */
        readonly ResubmitRequest: {
            /** @description Which rejected users, of those received until now; `{}` for all. */
            readonly filter: {
                /** @description Only users rejected for this reason: a `message`, with or without its indexes. */
                readonly reason?: string;
                /** @description Only users with an event of this name. */
                readonly event_name?: string;
                /** @description Only users of requests with this API key. */
                readonly key_id?: string;
                /**
                 * @description Only users received at or after this time. ISO 8601.
                 * @example 2026-11-14T09:30:00Z
                 */
                readonly from?: string;
                /**
                 * @description Only users received before this time. ISO 8601.
                 * @example 2026-11-14T09:30:00Z
                 */
                readonly to?: string;
            };
            /** @description A JSON Patch (RFC 6902) for each user. Beyond the RFC, `{"op": "to_string", "path": …}` converts a number or a boolean to a string. */
            readonly patch: readonly unknown[];
            /** @description Only show what would happen to them. */
            readonly dry_run?: boolean;
            /** @description For a dry run: `next_cursor` of the previous one. */
            readonly cursor?: string;
        };
        /**
         * Resubmitted
         * @description A job, or with `dry_run` what it would do.
         */
        readonly Resubmitted: {
            /** @description Null for a dry run. */
            readonly job: components["schemas"]["Job"] | null;
            /** @description Null unless it is a dry run. */
            readonly preview: components["schemas"]["ResubmitPreview"] | null;
        };
        /**
         * ResubmitPreview
         * @description What would happen to rejected users.
         */
        readonly ResubmitPreview: {
            /** @description All that match and were not resubmitted yet. */
            readonly matched: number;
            /** @description How many of them this response is about: at most 1,000, fewer if they are large. */
            readonly checked: number;
            /** @description Would be accepted. */
            readonly valid: number;
            /** @description Would still be rejected. */
            readonly still_rejected: number;
            /** @description Cannot be patched, because they were too large to be kept whole. */
            readonly cut: number;
            readonly effects: components["schemas"]["ResubmitEffects"];
            /** @description Your accepted requests that are not processed yet, and so are not considered. */
            readonly pending_requests: number;
            /** @description The most frequent first. */
            readonly reasons: readonly {
                /** @description Why they would still be rejected, without indexes. */
                readonly message: string;
                /** @description How many. */
                readonly users: number;
            }[];
            /** @description What you probably do not want. */
            readonly warnings: readonly string[];
            /** @description The first 50, those that would still be rejected before others. */
            readonly users: readonly components["schemas"]["CheckedUser"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * ResubmitEffects
         * @description What the valid users of this response would change, all together.
         */
        readonly ResubmitEffects: {
            /** @description How many users were predicted. */
            readonly users: number;
            /** @description Profiles that would be created. */
            readonly new_profiles: number;
            /** @description Merges of profiles. */
            readonly merges: number;
            /** @description Identifiers that a rule would not link. */
            readonly refusals: number;
            /** @description Properties of profiles that would have a different value. */
            readonly property_changes: number;
            /** @description Events that would be stored. */
            readonly events: number;
            /** @description Events that are stored already, by `$event_id`. */
            readonly duplicate_events: number;
            /** @description Violations of the tracking plan that would be counted. */
            readonly violations: number;
        };
        /**
         * CheckedUser
         * @description What would happen to one rejected user.
         */
        readonly CheckedUser: {
            /** @description The rejection. */
            readonly id: string;
            /**
             * @description `cut`: it was too large to be kept whole, so it cannot be patched; send it whole to `POST /rejections/{id}/resubmit`.
             * @enum {string}
             */
            readonly status: "valid" | "still_rejected" | "cut";
            /** @description Why it would still be rejected. */
            readonly message: string | null;
            /** @description The user as it would be; null unless it is valid. */
            readonly user: unknown;
            /** @description What would happen to profiles; null unless it is valid. A profile that would be created is named `new:` and the id of the rejection that would create it. */
            readonly prediction: components["schemas"]["PredictedUser"] | null;
        };
        /**
         * DeadLetterPage
         * @description Requests that could not be processed.
         */
        readonly DeadLetterPage: {
            /** @description Newest first, without those that a retry has stored. */
            readonly dead_letters: readonly components["schemas"]["DeadLetter"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * DeadLetter
         * @description A request, or a part of it, that could not be processed.
         */
        readonly DeadLetter: {
            /** @description `<trace_id>.<userIndex>` of its first user. */
            readonly id: string;
            /**
             * Format: uuid
             * @description The request.
             */
            readonly trace_id: string;
            /** @description Position of the user in that request, counted from 0. */
            readonly userIndex: number;
            /**
             * Format: date-time
             * @description When the server received it.
             */
            readonly received_at: string;
            /**
             * Format: date-time
             * @description When the processor gave it up.
             */
            readonly failed_at: string;
            /** @description Why. */
            readonly cause: string;
            /** @description Accepted users in it. */
            readonly users: number;
            /** @description Their events. */
            readonly events: number;
            /** @description Its API key. */
            readonly key_id: string;
            /** @description Whether its body is kept. */
            readonly can_retry: boolean;
        };
        /**
         * RetryRequest
         * @description Which dead letters to process again.
         */
        readonly RetryRequest: {
            /** @description Which dead letters; `{}` for all. */
            readonly filter: {
                /** @description Only those whose cause begins with this text. */
                readonly cause?: string;
                /**
                 * @description Only those received at or after this time. ISO 8601.
                 * @example 2026-11-14T09:30:00Z
                 */
                readonly from?: string;
                /**
                 * @description Only those received before this time. ISO 8601.
                 * @example 2026-11-14T09:30:00Z
                 */
                readonly to?: string;
            };
        };
        /**
         * JobPage
         * @description Jobs.
         */
        readonly JobPage: {
            /** @description Newest first. */
            readonly jobs: readonly components["schemas"]["Job"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * Receipts
         * @description What was received, by minute.
         */
        readonly Receipts: {
            /** @description Oldest first. Minutes without requests are left out. */
            readonly minutes: readonly components["schemas"]["ReceiptMinute"][];
        };
        /**
         * ReceiptMinute
         * @description What was received in one minute.
         */
        readonly ReceiptMinute: {
            /**
             * Format: date-time
             * @description Start of the minute of receipt, UTC.
             */
            readonly start: string;
            /** @description Users that were valid. */
            readonly users_accepted: number;
            /** @description Users that were invalid. */
            readonly users_rejected: number;
            /** @description Events of the valid ones. */
            readonly events_accepted: number;
        };
        /**
         * Ledger
         * @description Every event is accounted for.
         */
        readonly Ledger: {
            /** @description Whether every hour adds up, and no record is missing except those in `lost_records`. */
            readonly balanced: boolean;
            /** @description Requests that the store relies on and the event log has lost, of all tenants: anything but 0 needs an operator. */
            readonly missing_records: number;
            /** @description Requests that will never be in the store, of all tenants: an operator gave them up, or they were removed from the event log before this store was created. They do not affect `balanced`, and stay counted here. */
            readonly lost_records: number;
            /** @description Possible losses from the event log that cannot be counted here, as in `GET /health`. */
            readonly warnings: readonly string[];
            /** @description Newest first. Hours without requests are left out. */
            readonly hours: readonly components["schemas"]["LedgerHour"][];
            /** @description Over all hours, not only those above. */
            readonly totals: {
                readonly users: components["schemas"]["LedgerSums"];
                readonly events: components["schemas"]["LedgerSums"];
                /** @description Events that clients dropped before sending them, by the `dropped_by_client` of their requests. They were never received and are not part of the sums. A request counts once it is processed. */
                readonly dropped_by_clients: number;
            };
        };
        /**
         * LedgerHour
         * @description What was received in one hour.
         */
        readonly LedgerHour: {
            /**
             * Format: date-time
             * @description Start of the hour of receipt, UTC.
             */
            readonly hour: string;
            readonly users: components["schemas"]["LedgerSums"];
            readonly events: components["schemas"]["LedgerSums"];
            /** @description Invalid users. They are not part of the sums. */
            readonly users_rejected: number;
            /** @description Those of them that were fixed and resubmitted: since then they count as received, in the hour of their request, and are part of the sums. */
            readonly users_resubmitted: number;
            /** @description Events that clients dropped before sending them, by the `dropped_by_client` of their requests. They were never received and are not part of the sums. A request counts once it is processed. */
            readonly dropped_by_clients: number;
        };
        /**
         * LedgerSums
         * @description What happened to everything that was received.
         */
        readonly LedgerSums: {
            /** @description Acknowledged with a 202. */
            readonly received: number;
            /** @description Stored, and can be read. */
            readonly stored: number;
            /** @description Not stored again: sent before, with the same `Idempotency-Key` or `$event_id`. */
            readonly duplicates: number;
            /** @description Erased on request, or not stored because the person was erased. */
            readonly erased: number;
            /** @description Removed at the end of their retention. */
            readonly expired: number;
            /** @description Dead letters: they could not be processed, and are kept to be retried. */
            readonly dead_letters: number;
            /** @description Durable, and not processed yet. */
            readonly pending: number;
            /** @description Received minus all of these. Anything but 0 is a bug. */
            readonly difference: number;
        };
        /**
         * Catalogue
         * @description What is received.
         */
        readonly Catalogue: {
            /** @description By name; at most 2,000. */
            readonly events: readonly components["schemas"]["CatalogueEvent"][];
            /** @description Events with further names. */
            readonly other_events: number;
            /** @description Counted in users that set any; null before the first. */
            readonly user_properties: components["schemas"]["CataloguePeople"] | null;
            /** @description The same for profile fields. */
            readonly profile_fields: components["schemas"]["CataloguePeople"] | null;
        };
        /**
         * CatalogueEvent
         * @description An event name that is received.
         */
        readonly CatalogueEvent: {
            /** @description The name. */
            readonly event_name: string;
            /** @description How many were stored since it was first seen. An erase and retention do not change it. */
            readonly count: number;
            /** @description How many of them were examined for properties. */
            readonly examined: number;
            /** @description Whether some were not examined: then shares are estimates, and rare properties may be missing. */
            readonly is_sampled: boolean;
            /**
             * Format: date-time
             * @description When the first was received.
             */
            readonly first_seen: string;
            /**
             * Format: date-time
             * @description When the last was received.
             */
            readonly last_seen: string;
            /** @description The keys that sent it, oldest first; at most 20. */
            readonly key_ids: readonly string[];
            /** @description The number of properties. */
            readonly property_count: number;
            /** @description The last 10, oldest first. Properties that the event had from the start are not included. */
            readonly changes: readonly components["schemas"]["CatalogueChange"][];
        };
        /**
         * CatalogueChange
         * @description A property or type that was added after the event was first seen.
         */
        readonly CatalogueChange: {
            /**
             * @description A new property, or a new type of a property.
             * @enum {string}
             */
            readonly change: "new_property" | "new_type";
            /** @description The property. */
            readonly property: string;
            /** @description The other type; null for a new property. */
            readonly type: ("string" | "number" | "boolean" | "object" | "array" | "null") | null;
            /**
             * Format: date-time
             * @description When it was first received.
             */
            readonly at: string;
        };
        /**
         * CataloguePeople
         * @description What users set on people.
         */
        readonly CataloguePeople: {
            /** @description How many were stored since it was first seen. An erase and retention do not change it. */
            readonly count: number;
            /** @description How many of them were examined for properties. */
            readonly examined: number;
            /** @description Whether some were not examined: then shares are estimates, and rare properties may be missing. */
            readonly is_sampled: boolean;
            /**
             * Format: date-time
             * @description When the first was received.
             */
            readonly first_seen: string;
            /**
             * Format: date-time
             * @description When the last was received.
             */
            readonly last_seen: string;
            /** @description The keys that sent it, oldest first; at most 20. */
            readonly key_ids: readonly string[];
            /** @description The number of properties. */
            readonly property_count: number;
            /** @description The last 10, oldest first. Properties that the event had from the start are not included. */
            readonly changes: readonly components["schemas"]["CatalogueChange"][];
            /** @description The most frequent first; at most 300. */
            readonly properties: readonly components["schemas"]["CatalogueProperty"][];
            /** @description Values of further properties. */
            readonly other_properties: number;
        };
        /**
         * CatalogueProperty
         * @description A property and the types of its values.
         */
        readonly CatalogueProperty: {
            /** @description The name. */
            readonly name: string;
            /** @description Share of the examined events or users that have it. */
            readonly share: number;
            /** @description The types of its values. */
            readonly types: readonly {
                /**
                 * @description Type of a JSON value.
                 * @enum {string}
                 */
                readonly type: "string" | "number" | "boolean" | "object" | "array" | "null";
                /** @description Share of its values that have this type. */
                readonly share: number;
                /**
                 * Format: date-time
                 * @description When a value of this type was first received.
                 */
                readonly first_seen: string;
            }[];
            /** @description A few recent values: strings, numbers and booleans as text, cut to 64 characters. Profile fields have none. Masked if the tracking plan marks the property as personal. */
            readonly examples: readonly string[];
            /** @description Whether the tracking plan marks it as personal. */
            readonly is_personal: boolean;
            /**
             * Format: date-time
             * @description When it was first received.
             */
            readonly first_seen: string;
            /**
             * Format: date-time
             * @description When it was last received.
             */
            readonly last_seen: string;
        };
        /**
         * CatalogueEventDetails
         * @description An event name, and its properties.
         */
        readonly CatalogueEventDetails: {
            /** @description The name. */
            readonly event_name: string;
            /** @description How many were stored since it was first seen. An erase and retention do not change it. */
            readonly count: number;
            /** @description How many of them were examined for properties. */
            readonly examined: number;
            /** @description Whether some were not examined: then shares are estimates, and rare properties may be missing. */
            readonly is_sampled: boolean;
            /**
             * Format: date-time
             * @description When the first was received.
             */
            readonly first_seen: string;
            /**
             * Format: date-time
             * @description When the last was received.
             */
            readonly last_seen: string;
            /** @description The keys that sent it, oldest first; at most 20. */
            readonly key_ids: readonly string[];
            /** @description The number of properties. */
            readonly property_count: number;
            /** @description The last 10, oldest first. Properties that the event had from the start are not included. */
            readonly changes: readonly components["schemas"]["CatalogueChange"][];
            /** @description The most frequent first; at most 300. */
            readonly properties: readonly components["schemas"]["CatalogueProperty"][];
            /** @description Values of further properties. */
            readonly other_properties: number;
        };
        /**
         * AuditPage
         * @description Every unmerge, erasure, resubmit and retry.
         */
        readonly AuditPage: {
            /** @description Newest first. */
            readonly entries: readonly components["schemas"]["AuditEntry"][];
            /** @description Send it as `cursor` for the next page; null when there is no more. */
            readonly next_cursor: string | null;
        };
        /**
         * AuditEntry
         * @description One unmerge, erasure, resubmit or retry.
         */
        readonly AuditEntry: {
            /**
             * @description What was done.
             * @enum {string}
             */
            readonly kind: "unmerge" | "erase" | "resubmit" | "retry";
            /**
             * Format: uuid
             * @description The call that did it.
             */
            readonly trace_id: string;
            /**
             * Format: date-time
             * @description When.
             */
            readonly at: string;
            /** @description To what, and `by` which key (`key_id`) or member (`member_id`). `is_finished` is false while an erasure is running, or after it was interrupted: then the numbers are those of what is removed so far. */
            readonly detail: unknown;
        };
        /**
         * Health
         * @description The health of the server.
         */
        readonly Health: {
            /**
             * @description As `/readyz` says.
             * @enum {string}
             */
            readonly status: "ready" | "not ready";
            /** @description Why the server is not ready. */
            readonly reasons: readonly string[];
            /** @description What an operator should know: findings of the last start, possible losses from the event log that cannot be counted, such as after a missing or old `log-ends`, and that the store was rebuilt from the log. The latter two stay until `log-warnings` in the data folder is removed. */
            readonly warnings: readonly string[];
            /** @description Why processing waits, such as a store that cannot be written or does not belong to the log; null while it continues, and on a server that processes nothing. Accepted requests stay in the log. */
            readonly processing_problem: string | null;
            /** @description Of Sluice. */
            readonly version: string;
            /**
             * @description The role of this server.
             * @enum {string}
             */
            readonly role: "all" | "edge" | "processor" | "api";
            /** @description Version of Node.js. */
            readonly node: string;
            /**
             * Format: date-time
             * @description When this process started.
             */
            readonly started_at: string;
            /** @description In the log and not yet processed; null until it was measured. */
            readonly backlog_bytes: number | null;
            /** @description Above this, events get 503. */
            readonly backlog_bytes_max: number;
            /** @description Age of the oldest request that is not yet processed; null on a server that processes none. */
            readonly lag_seconds: number | null;
            /** @description Free space on the disk of the data folder; null on a server without one. */
            readonly disk_free_bytes: number | null;
            /** @description Below this, events get 503. */
            readonly disk_free_bytes_min: number;
            /** @description When the last successful `sluice backup` of the data folder began: everything acknowledged before is in it. Null if there was none; backups by other means, such as of PostgreSQL, are not included. */
            readonly last_backup_at: string | null;
            /** @description How far the clock is ahead of `received_at`, because it jumped and is not trusted; 0 while it is. Correct the clock. If it is right, restart the server, with a larger `SLUICE_CLOCK_GAP_MAX` if the difference is larger than that. */
            readonly clock_held_seconds: number;
            /** @description How far the clock is behind `received_at`, which never goes back: it advances at half speed until the clock has caught up. If the clock is wrong, correct it. */
            readonly clock_behind_seconds: number;
            /** @description Resident memory of the process. */
            readonly memory_bytes: number;
            /** @description Events that are not accounted for: anything but 0 is a bug; null on a server that processes nothing. */
            readonly ledger_difference: number | null;
            /** @description Records that the store relies on and the log does not have: anything but 0 needs an operator; null on a server that processes nothing. */
            readonly log_missing_records: number | null;
            /** @description Records that will never be in the store: given up by an operator, or removed from the log before this store was created; null on a server that processes nothing. */
            readonly log_lost_records: number | null;
            /** @description Dead letters: requests that could not be processed, kept to be retried. */
            readonly dead_letters: number;
            /** @description Responses to requests under `/ingest/`, of the whole server. Requests rejected for an invalid key or broken JSON are counted nowhere else: they belong to no account. */
            readonly requests: readonly {
                /** @description The HTTP status. */
                readonly status: number;
                /** @description Responses with it since `started_at`. */
                readonly requests: number;
            }[];
            /** @description Threads that serve requests. */
            readonly edges: number;
            /** @description All settings. */
            readonly settings: readonly components["schemas"]["Setting"][];
        };
        /**
         * Setting
         * @description One setting of the server.
         */
        readonly Setting: {
            /** @description Name of the environment variable. */
            readonly name: string;
            /** @description What is in effect. */
            readonly value: string;
            /** @description What would be, if nothing was set. */
            readonly default: string;
            /**
             * @description Where the value came from.
             * @enum {string}
             */
            readonly source: "default" | "environment" | "flag";
            /** @description What it does. */
            readonly description: string;
        };
        /**
         * Session
         * @description Who is signed in, and to what.
         */
        readonly Session: {
            /** @description Who is signed in. */
            readonly member: {
                /** @description Id of the member. */
                readonly id: string;
                /** @description An e-mail address. */
                readonly email: string;
            };
            /** @description The account and environment. */
            readonly account: {
                /** @description Id of the account. */
                readonly id: string;
                /** @description The name of the account. */
                readonly name: string;
            };
            /** @description Those that this server serves. */
            readonly environments: readonly ("production" | "development")[];
            /** @description This server. */
            readonly server: {
                /** @description Where it is reached. */
                readonly url: string;
                /** @description Of Sluice. */
                readonly version: string;
            };
        };
        /**
         * InvitationLook
         * @description What an invitation is for.
         */
        readonly InvitationLook: {
            /**
             * @description For the first member of an account, for another one, or for a new password.
             * @enum {string}
             */
            readonly kind: "first" | "invitation" | "reset";
            /** @description Of which account. */
            readonly account_name: string;
            /** @description Who it is for; null if anyone with the link may use it. */
            readonly email: string | null;
            /**
             * Format: date-time
             * @description Until when it can be accepted.
             */
            readonly expires_at: string;
        };
        /**
         * MemberList
         * @description Who may sign in to an account, and who is invited.
         */
        readonly MemberList: {
            /** @description Oldest first. */
            readonly members: readonly components["schemas"]["Member"][];
            /** @description Those that can still be accepted. */
            readonly invitations: readonly components["schemas"]["Invitation"][];
        };
        /**
         * Member
         * @description A person who may sign in to the account.
         */
        readonly Member: {
            /** @description Id of the member. */
            readonly id: string;
            /** @description An e-mail address. */
            readonly email: string;
            /**
             * Format: date-time
             * @description Since when.
             */
            readonly created_at: string;
            /** @description When they last signed in. */
            readonly last_signed_in_at: string | null;
            /** @description Whether it is the member who asks. */
            readonly is_you: boolean;
        };
        /**
         * Invitation
         * @description An invitation that can still be accepted.
         */
        readonly Invitation: {
            /** @description Id of the invitation. */
            readonly id: string;
            /**
             * Format: date-time
             * @description Until when it can be accepted.
             */
            readonly expires_at: string;
            /** @description Who it is for; null if anyone with the link may use it. */
            readonly email: string | null;
            /**
             * Format: date-time
             * @description When it was made.
             */
            readonly created_at: string;
        };
        /**
         * CreatedInvitation
         * @description An invitation. Sluice sends no e-mail.
         */
        readonly CreatedInvitation: {
            /** @description Id of the invitation. */
            readonly id: string;
            /**
             * Format: date-time
             * @description Until when it can be accepted.
             */
            readonly expires_at: string;
            /** @description An e-mail address. */
            readonly email: string;
            /** @description For the person. Shown only once, in this response. */
            readonly link: string;
        };
        /**
         * KeyList
         * @description The keys of an account.
         */
        readonly KeyList: {
            /** @description Newest first. */
            readonly keys: readonly components["schemas"]["Key"][];
        };
        /**
         * Key
         * @description An API key, without its secret.
         */
        readonly Key: {
            /** @description Id of the key; not secret. */
            readonly id: string;
            /** @description The name of the key, for people. */
            readonly name: string;
            /**
             * @description Secret keys may do everything in their environment except manage keys and members, publishable ones may only send events.
             * @enum {string}
             */
            readonly kind: "secret" | "publishable";
            /**
             * @description Which of the two environments.
             * @enum {string}
             */
            readonly environment: "production" | "development";
            /** @description How the key begins. */
            readonly prefix: string;
            /** @description Its last four characters. */
            readonly last_four: string;
            /** @description Where browsers may use a publishable key; empty: anywhere. */
            readonly origins: readonly string[];
            /** @description How many users the key may send; null: no limit. Beyond it the response is 503 with `Retry-After`, or 429 under `/ingest/v1/`. */
            readonly rate_limit: components["schemas"]["RateLimit"] | null;
            /**
             * Format: date-time
             * @description When it was made.
             */
            readonly created_at: string;
            /** @description When it expires. */
            readonly expires_at: string | null;
            /** @description When it was revoked. */
            readonly revoked_at: string | null;
            /** @description When it was last used, to within a few seconds. */
            readonly last_used_at: string | null;
            /** @description The website of the newest request that came from one. */
            readonly last_origin: string | null;
            readonly volume: components["schemas"]["KeyVolume"];
            /** @description When a secret key was first used from a web page of another site. */
            readonly leak_suspected_at: string | null;
            /** @description That site. */
            readonly leak_origin: string | null;
            /**
             * @description Whether it works.
             * @enum {string}
             */
            readonly state: "active" | "expired" | "revoked";
            /** @description Active, and neither created nor used within 30 days. */
            readonly is_unused: boolean;
        };
        /**
         * RateLimit
         * @description How many users a key may send.
         */
        readonly RateLimit: {
            /** @description On average. */
            readonly users_per_second: number;
            /** @description How many users may arrive at once after a pause. */
            readonly burst: number;
        };
        /**
         * KeyVolume
         * @description Received with a key today and in the 6 days before, UTC.
         */
        readonly KeyVolume: {
            /** @description Accepted users. */
            readonly users: number;
            /** @description Their events. */
            readonly events: number;
            /** @description Invalid users. */
            readonly users_rejected: number;
            /** @description Requests that were refused because of the rate limit of the key. */
            readonly requests_limited: number;
        };
        /**
         * KeyOptions
         * @description Properties of the new key.
         */
        readonly KeyOptions: {
            /** @description The name of the key, for people. */
            readonly name: string;
            /**
             * @description Secret keys may do everything in their environment except manage keys and members, publishable ones may only send events.
             * @enum {string}
             */
            readonly kind: "secret" | "publishable";
            /**
             * @description Which of the two environments.
             * @enum {string}
             */
            readonly environment: "production" | "development";
            /** @description When it expires. */
            readonly expires_at?: string | null;
            /** @description Where browsers may use a publishable key; empty: anywhere. */
            readonly origins?: readonly string[];
            /** @description How many users the key may send; null: no limit. Beyond it the response is 503 with `Retry-After`, or 429 under `/ingest/v1/`. */
            readonly rate_limit?: components["schemas"]["RateLimit"] | null;
        };
        /**
         * CreatedKey
         * @description A new key.
         */
        readonly CreatedKey: {
            /** @description The key in full. Shown only once, in this response. */
            readonly key: string;
            readonly row: components["schemas"]["Key"];
        };
        /**
         * KeyChanges
         * @description The fields to change; others stay the same.
         */
        readonly KeyChanges: {
            /** @description The name of the key, for people. */
            readonly name?: string;
            /** @description Where browsers may use a publishable key; empty: anywhere. */
            readonly origins?: readonly string[];
            /** @description How many users the key may send; null: no limit. Beyond it the response is 503 with `Retry-After`, or 429 under `/ingest/v1/`. */
            readonly rate_limit?: components["schemas"]["RateLimit"] | null;
        };
        /**
         * RolledKey
         * @description A new key, and the one that it replaces.
         */
        readonly RolledKey: {
            /** @description The key in full. Shown only once, in this response. */
            readonly key: string;
            readonly row: components["schemas"]["Key"];
            readonly old: components["schemas"]["Key"];
        };
        /**
         * Alive
         * @description The process runs and responds.
         */
        readonly Alive: {
            /** @constant */
            readonly status: "alive";
        };
        /**
         * Ready
         * @description Ready. A server that receives events accepts them.
         */
        readonly Ready: {
            /** @constant */
            readonly status: "ready";
        };
        /**
         * NotReady
         * @description Not ready: see `reasons`. Events may still be accepted.
         */
        readonly NotReady: {
            /** @constant */
            readonly status: "not ready";
            /** @description Why, for an operator. */
            readonly reasons: readonly string[];
        };
        /**
         * Version
         * @description The version of this server.
         */
        readonly Version: {
            /** @description Of Sluice. */
            readonly version: string;
            /**
             * @description The role of this server.
             * @enum {string}
             */
            readonly role: "all" | "edge" | "processor" | "api";
        };
        /**
         * ValidationFailed
         * @description Every user is invalid (`errors` says why, user by user), or the payload is unusable: not JSON, not UTF-8, no `users`, wrong content type or encoding (`message` says what and where).
         */
        readonly ValidationFailed: {
            /** @constant */
            readonly error: "validation failed";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description One entry per rejected user, in order of `userIndex`. */
            readonly errors: readonly components["schemas"]["UserError"][];
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * Unauthorized
         * @description The key is missing, wrong, revoked, expired, or for an environment that this server does not serve.
         */
        readonly Unauthorized: {
            /** @constant */
            readonly error: "unauthorized";
        };
        /**
         * BadRequest
         * @description The request is not valid HTTP; or, outside `/ingest/`, the path or a parameter cannot be understood.
         */
        readonly BadRequest: {
            /** @constant */
            readonly error: "bad request";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * Forbidden
         * @description A publishable key is used outside `/ingest/`, or from an origin that is not in its list.
         */
        readonly Forbidden: {
            /** @constant */
            readonly error: "forbidden";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * NotFound
         * @description Nothing exists at this path, or not in this account and environment.
         */
        readonly NotFound: {
            /** @constant */
            readonly error: "not found";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * MethodNotAllowed
         * @description The path exists, but not for this method. `Allow` lists those that do.
         */
        readonly MethodNotAllowed: {
            /** @constant */
            readonly error: "method not allowed";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * RequestTimeout
         * @description The request did not arrive completely in time.
         */
        readonly RequestTimeout: {
            /** @constant */
            readonly error: "request timeout";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * Conflict
         * @description It conflicts with something that is stored (a newer tracking plan, a rejected user that was fixed before, the e-mail address of a member), or a member would remove themselves.
         */
        readonly Conflict: {
            /** @constant */
            readonly error: "conflict";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * PayloadTooLarge
         * @description The body is over 10 MB, as sent or after decompression; outside `/ingest/`, over 64 kB, or what `message` says.
         */
        readonly PayloadTooLarge: {
            /** @constant */
            readonly error: "payload too large";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * TooManyAttempts
         * @description Signing in failed too often; `Retry-After` says how long to wait.
         */
        readonly TooManyAttempts: {
            /** @constant */
            readonly error: "too many attempts";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * InternalError
         * @description An error in Sluice. Nothing was acknowledged.
         */
        readonly InternalError: {
            /** @constant */
            readonly error: "internal error";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
        /**
         * Unavailable
         * @description The server cannot serve it now: too much in flight, disk full or failing, keys or store unreachable, shutting down. At `/ingest/events` also: the key has sent more users than its rate limit allows, as `message` says.
         */
        readonly Unavailable: {
            /** @constant */
            readonly error: "service temporarily unavailable";
            /**
             * Format: uuid
             * @description The id of this request, also in the `X-Trace-Id` header. Quote it when you ask for help.
             */
            readonly trace_id: string;
            /** @description What is wrong and where, for a person. */
            readonly message?: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type IngestRequest = components['schemas']['IngestRequest'];
export type User = components['schemas']['User'];
export type Identifiers = components['schemas']['Identifiers'];
export type UserProperties = components['schemas']['UserProperties'];
export type Event = components['schemas']['Event'];
export type IngestAccepted = components['schemas']['IngestAccepted'];
export type UserError = components['schemas']['UserError'];
export type CheckResponse = components['schemas']['CheckResponse'];
export type PredictedUser = components['schemas']['PredictedUser'];
export type PredictedViolation = components['schemas']['PredictedViolation'];
export type SegmentAccepted = components['schemas']['SegmentAccepted'];
export type SegmentMessageError = components['schemas']['SegmentMessageError'];
export type SegmentFailure = components['schemas']['SegmentFailure'];
export type SegmentDiscarded = components['schemas']['SegmentDiscarded'];
export type Profile = components['schemas']['Profile'];
export type Provenance = components['schemas']['Provenance'];
export type PropertySource = components['schemas']['PropertySource'];
export type ProfileMatches = components['schemas']['ProfileMatches'];
export type ProfileMatch = components['schemas']['ProfileMatch'];
export type ProfileCount = components['schemas']['ProfileCount'];
export type Erased = components['schemas']['Erased'];
export type PersonalData = components['schemas']['PersonalData'];
export type EventPage = components['schemas']['EventPage'];
export type StoredEvent = components['schemas']['StoredEvent'];
export type Person = components['schemas']['Person'];
export type Identity = components['schemas']['Identity'];
export type LinkedIdentifier = components['schemas']['LinkedIdentifier'];
export type Merge = components['schemas']['Merge'];
export type Refusal = components['schemas']['Refusal'];
export type ChainStep = components['schemas']['ChainStep'];
export type UnmergeRequest = components['schemas']['UnmergeRequest'];
export type Unmerged = components['schemas']['Unmerged'];
export type Arrivals = components['schemas']['Arrivals'];
export type Counts = components['schemas']['Counts'];
export type CountBucket = components['schemas']['CountBucket'];
export type CurrencySum = components['schemas']['CurrencySum'];
export type TracePage = components['schemas']['TracePage'];
export type TraceSummary = components['schemas']['TraceSummary'];
export type Trace = components['schemas']['Trace'];
export type TracedUser = components['schemas']['TracedUser'];
export type Resubmission = components['schemas']['Resubmission'];
export type RejectionPage = components['schemas']['RejectionPage'];
export type Rejection = components['schemas']['Rejection'];
export type RejectionReasons = components['schemas']['RejectionReasons'];
export type RejectionReason = components['schemas']['RejectionReason'];
export type CurrentPlan = components['schemas']['CurrentPlan'];
export type Plan = components['schemas']['Plan'];
export type PlannedProperties = components['schemas']['PlannedProperties'];
export type PushedPlan = components['schemas']['PushedPlan'];
export type PlanVersions = components['schemas']['PlanVersions'];
export type PlanVersion = components['schemas']['PlanVersion'];
export type PlanViolations = components['schemas']['PlanViolations'];
export type PlanViolation = components['schemas']['PlanViolation'];
export type ResubmitUser = components['schemas']['ResubmitUser'];
export type Job = components['schemas']['Job'];
export type JobProblem = components['schemas']['JobProblem'];
export type ResubmitRequest = components['schemas']['ResubmitRequest'];
export type Resubmitted = components['schemas']['Resubmitted'];
export type ResubmitPreview = components['schemas']['ResubmitPreview'];
export type ResubmitEffects = components['schemas']['ResubmitEffects'];
export type CheckedUser = components['schemas']['CheckedUser'];
export type DeadLetterPage = components['schemas']['DeadLetterPage'];
export type DeadLetter = components['schemas']['DeadLetter'];
export type RetryRequest = components['schemas']['RetryRequest'];
export type JobPage = components['schemas']['JobPage'];
export type Receipts = components['schemas']['Receipts'];
export type ReceiptMinute = components['schemas']['ReceiptMinute'];
export type Ledger = components['schemas']['Ledger'];
export type LedgerHour = components['schemas']['LedgerHour'];
export type LedgerSums = components['schemas']['LedgerSums'];
export type Catalogue = components['schemas']['Catalogue'];
export type CatalogueEvent = components['schemas']['CatalogueEvent'];
export type CatalogueChange = components['schemas']['CatalogueChange'];
export type CataloguePeople = components['schemas']['CataloguePeople'];
export type CatalogueProperty = components['schemas']['CatalogueProperty'];
export type CatalogueEventDetails = components['schemas']['CatalogueEventDetails'];
export type AuditPage = components['schemas']['AuditPage'];
export type AuditEntry = components['schemas']['AuditEntry'];
export type Health = components['schemas']['Health'];
export type Setting = components['schemas']['Setting'];
export type Session = components['schemas']['Session'];
export type InvitationLook = components['schemas']['InvitationLook'];
export type MemberList = components['schemas']['MemberList'];
export type Member = components['schemas']['Member'];
export type Invitation = components['schemas']['Invitation'];
export type CreatedInvitation = components['schemas']['CreatedInvitation'];
export type KeyList = components['schemas']['KeyList'];
export type Key = components['schemas']['Key'];
export type RateLimit = components['schemas']['RateLimit'];
export type KeyVolume = components['schemas']['KeyVolume'];
export type KeyOptions = components['schemas']['KeyOptions'];
export type CreatedKey = components['schemas']['CreatedKey'];
export type KeyChanges = components['schemas']['KeyChanges'];
export type RolledKey = components['schemas']['RolledKey'];
export type Alive = components['schemas']['Alive'];
export type Ready = components['schemas']['Ready'];
export type NotReady = components['schemas']['NotReady'];
export type Version = components['schemas']['Version'];
export type ValidationFailed = components['schemas']['ValidationFailed'];
export type Unauthorized = components['schemas']['Unauthorized'];
export type BadRequest = components['schemas']['BadRequest'];
export type Forbidden = components['schemas']['Forbidden'];
export type NotFound = components['schemas']['NotFound'];
export type MethodNotAllowed = components['schemas']['MethodNotAllowed'];
export type RequestTimeout = components['schemas']['RequestTimeout'];
export type Conflict = components['schemas']['Conflict'];
export type PayloadTooLarge = components['schemas']['PayloadTooLarge'];
export type TooManyAttempts = components['schemas']['TooManyAttempts'];
export type InternalError = components['schemas']['InternalError'];
export type Unavailable = components['schemas']['Unavailable'];
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
