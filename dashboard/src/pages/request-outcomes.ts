/**
 * The responses to ingest requests, in words: one line for each status, and one sentence for those refusals that
 * need action. Pure. All counts are of the whole server and start at zero with it, because a
 * request without a good key belongs to no account.
 */

import type { Health } from '../api-types.ts';

type Requests = Health['requests'];

export interface Outcome {
  readonly status: number;
  readonly requests: number;
  readonly tone: 'good' | 'quiet' | 'warn' | 'bad';
  readonly title: string;
  readonly text: string;
}

type Words = Pick<Outcome, 'tone' | 'title' | 'text'>;

const OUTCOME_WORDS: ReadonlyMap<number, Words> = new Map<number, Words>([
  [200, { tone: 'good', title: 'Accepted, Segment format', text: 'Under /ingest/v1/, settings for SDKs included.' }],
  [202, { tone: 'good', title: 'Accepted', text: 'Single users in them may still be among the rejected.' }],
  [204, { tone: 'quiet', title: 'Asked first', text: 'Browsers that asked whether they may send.' }],
  [
    400,
    {
      tone: 'warn',
      title: 'Not usable',
      text: 'Broken JSON, a wrong content type, or not one valid user. The response says which; users are under Rejected.',
    },
  ],
  [
    401,
    {
      tone: 'bad',
      title: 'Invalid key',
      text: 'No key, or one that is unknown, revoked, expired or for the other environment. Check the key that the client uses.',
    },
  ],
  [
    403,
    {
      tone: 'bad',
      title: 'Origin not allowed',
      text: 'From a website that the allowed origins of the publishable key do not name. Add it under API keys.',
    },
  ],
  [404, { tone: 'warn', title: 'No such address', text: 'Events go to /ingest/events.' }],
  [405, { tone: 'warn', title: 'Wrong method', text: 'Events are sent with POST.' }],
  [408, { tone: 'warn', title: 'Too slow', text: 'The request did not arrive completely in time.' }],
  [413, { tone: 'warn', title: 'Too large', text: 'More than 10 MB. Send fewer users at once.' }],
  [
    429,
    {
      tone: 'bad',
      title: 'Not accepted, Segment format',
      text: 'Like 503, in the form that Segment’s SDKs understand. They retry.',
    },
  ],
  [431, { tone: 'warn', title: 'Headers too large', text: 'Cookies or other headers of the request are too long.' }],
  [500, { tone: 'bad', title: 'Failed', text: 'An error in Sluice. The log has the reason; clients may retry.' }],
  [
    503,
    {
      tone: 'bad',
      title: 'Not accepted',
      text: 'Too busy, not ready or stopping, or the key was over its rate limit. Clients that respect Retry-After retry, and lose nothing.',
    },
  ],
]);

const OTHER: Words = { tone: 'quiet', title: 'Other', text: '' };

export function outcomesOf(requests: Requests): Outcome[] {
  return requests.map(({ status, requests: count }) => ({
    status,
    requests: count,
    ...(OUTCOME_WORDS.get(status) ?? OTHER),
  }));
}

const REFUSED_FOR: readonly (readonly [status: number, words: string])[] = [
  [401, 'for the key'],
  [403, 'for the origin'],
  [503, 'because the server was too busy or not ready, or a key was over its rate limit'],
];

/** Null when nothing needs attention. */
export function refusalWords(requests: Requests): string | null {
  const parts = REFUSED_FOR.flatMap(([status, words]) => {
    const count = requests.find((each) => each.status === status)?.requests ?? 0;
    return count === 0 ? [] : [{ count, words }];
  });
  const [first, ...rest] = parts;
  if (first === undefined) return null;
  const isOne = rest.length === 0 && first.count === 1;
  const start = `${number.format(first.count)} request${first.count === 1 ? '' : 's'} ${isOne ? 'was' : 'were'} refused`;
  const reasons = [first.words, ...rest.map(({ count, words }) => `${number.format(count)} ${words}`)];
  return `On the whole server, ${start} ${listWords(reasons)} since it started.`;
}

const number = new Intl.NumberFormat('en-GB');

function listWords(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}
