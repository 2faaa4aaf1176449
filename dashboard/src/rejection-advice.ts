/**
 * What a rejection means for the sender: which part of the user is wrong, and how to fix it. Both are read off the
 * server's message; a message that is not known here is still shown, with the field it names and without advice.
 */

interface Advice {
  /** Where in the user it went wrong, such as `events[0].event_name`; null when the message names nothing. */
  readonly path: string | null;
  readonly fix: string;
}

interface Rule {
  readonly pattern: RegExp;
  /** Where the message itself names no field. */
  readonly path?: string;
  readonly fix: string;
}

/** What the message says of the path comes after it. */
const PATH =
  /^((?:identifiers|user_properties|events).*?) (?:is required and must be |must be |is nested too|contains a character|has a key)/s;

/** What a tracking plan says of a path comes after a colon. */
const PLAN_PATH = /^((?:identifiers|user_properties|events)\S*?|events\[\d*\]\[".*"\]): /s;

const RULES: readonly Rule[] = [
  {
    pattern: /\(tracking plan, version \d+\)$/,
    fix: 'The tracking plan enforces this. Change what is sent, or, if the event is right, the plan (see Plan).',
  },
  {
    pattern: /^at least one identifier is required/,
    path: 'identifiers',
    fix: 'Send at least one of user_id, email, phone_number or anon_id in “identifiers”, as a string that is not blank. For visitors who are not signed in, generate an anon_id once and keep it.',
  },
  {
    pattern: /^events array is required/,
    path: 'events',
    fix: 'Give each user an “events” array with at least one event. To set properties of a person without an event, send one such as “profile_updated”.',
  },
  { pattern: /^user must be an object/, fix: 'Each entry of “users” is an object with “identifiers” and “events”.' },
  {
    pattern: /^identifiers\.\S+ must be a string/,
    fix: 'Send it as a string: put quotes around numbers, and leave out unknown values (or send null).',
  },
  {
    pattern: /^identifiers\.\S+ must be at most/,
    fix: 'Such a long value is rarely an identifier. Check whether a token or a whole document was put there by mistake.',
  },
  { pattern: /^identifiers must be an object/, fix: 'Send “identifiers” as an object with strings as values.' },
  { pattern: /^user_properties must be an object/, fix: 'Send an object of names and values, or leave it out.' },
  { pattern: /^events\[\d*\] must be an object/, fix: 'Each entry of “events” is an object with an “event_name”.' },
  {
    pattern: /event_name is required/,
    fix: 'Give the event a name: a string of 1 to 512 characters, not only spaces. The field is called “event_name”, not “name” or “event”.',
  },
  {
    pattern: /timestamp must be an ISO 8601/,
    fix: 'Send a time such as 2026-11-15T09:30:00Z, or leave it out: then the time of receipt counts. Seconds or milliseconds since 1970 are not accepted, nor are days that do not exist.',
  },
  {
    pattern: /(revenue|event_value) must be a number/,
    fix: 'Send a number without quotes, currency sign or thousands separator, and with a point before the decimals, not a comma: 12.50, not “12,50”.',
  },
  {
    pattern: /\$event_id must be a string/,
    fix: 'Send “$event_id” as a string of 1 to 255 characters, the same one whenever the same event is sent again, or leave it out.',
  },
  {
    pattern: /has a key longer than/,
    fix: 'Names of properties have at most 512 characters. A value may have become a name.',
  },
  { pattern: /nested too deeply/, fix: 'Flatten the value: objects and arrays may be at most 64 deep.' },
  {
    pattern: /cannot be stored/,
    fix: 'The string has the character U+0000 or a lone surrogate, usually from cutting a string in the middle of an emoji. Clean it before sending.',
  },
];

/** The message without its indexes: what `GET /rejections` and its reasons call it. */
export function withoutIndexes(message: string): string {
  return message.replaceAll(/\[\d+\]/g, '[]');
}

export function adviceFor(message: string): Advice {
  const rule = RULES.find(({ pattern }) => pattern.test(message));
  const named = PLAN_PATH.exec(message)?.[1] ?? PATH.exec(message)?.[1] ?? null;
  return { path: rule?.path ?? named, fix: rule?.fix ?? '' };
}
