/**
 * `sluice demo`: sends the sample shop (demo-shop.ts) to a server over HTTP, in order, one request at a time, and says
 * where to look. A server that has data, and a key for production, need `--yes`: sample people cannot be
 * distinguished from real ones afterwards. Repeats are safe, since every event has an `$event_id` made from the seed.
 */

import { integer } from '../config/values.ts';
import { OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { readArguments, readFlag } from './arguments.ts';
import { PERSON_WITH_MERGE, PERSON_WITH_REFUSAL, type Shop, shopOf } from './demo-shop.ts';
import { sendBody, targetOf, UnsentError } from './import-send.ts';
import { countOf } from './local-time.ts';
import { Progress } from './progress.ts';
import { callApi, dashboardPage, givenKey, notSluiceText, readServer, type Server } from './server.ts';
import type { Shell } from './shell.ts';
import { printable } from './table.ts';

const RETRY_TIMEOUT_MS = 30_000;
const SEED_MAX = 4_294_967_295;

export async function runDemo(args: readonly string[], shell: Shell): Promise<number> {
  const { server, seed, isSure } = await readOptions(args, shell);
  // Asked with --yes as well: it says at once when the key is wrong.
  const usersReceived = await usersReceivedBy(server, shell);
  if (usersReceived > 0 && !isSure) {
    throw new OperatorError(
      `${server.url.origin} has data already (${countOf(usersReceived, 'user')} received with keys of this ` +
        'environment). To add the sample shop to it, or to continue one that was interrupted: sluice demo --yes',
    );
  }
  const shop = shopOf(seed, shell.now());
  const rejected = await sendShop(shop, server, shell);
  shell.out(summary(shop, rejected, server));
  return 0;
}

async function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('demo', args);
  const { mistakes } = flags;
  flags.refuse(flags.positionals);
  const { parse, expected } = integer(0, SEED_MAX);
  const seed = readFlag(flags, 'seed', parse, expected) ?? 1;
  const key = givenKey(flags, shell);
  const isSure = flags.switches.has('yes');
  if (key.startsWith('pk_')) mistakes.push('the key is a publishable one; expected a secret one (sk_dev_…)');
  if (key.startsWith('sk_prod_') && !isSure) {
    mistakes.push('the key is for production; use one for development (sk_dev_…), or confirm with --yes');
  }
  return { server: await readServer(flags, shell), seed, isSure };
}

async function usersReceivedBy(server: Server, { stop }: Shell): Promise<number> {
  const reply = await callApi(server, 'ledger', { stop });
  const { totals } = reply.json;
  const users = isObject(totals) ? totals.users : undefined;
  if (!isObject(users) || typeof users.received !== 'number') throw new OperatorError(notSluiceText(server, reply));
  return users.received;
}

/** The number of users that were rejected. */
async function sendShop(shop: Shop, server: Server, shell: Shell): Promise<number> {
  const progress = new Progress('Sample shop', 'user', shell);
  const target = targetOf(server, RETRY_TIMEOUT_MS, shell);
  const sum = { users: 0, bytes: 0, rejected: 0 };
  const total = shop.requests.length;
  progress.show({ count: 0, bytes: 0, done: 0, total });
  try {
    for (const [index, { body, idempotencyKey, users }] of shop.requests.entries()) {
      const bytes = Buffer.from(body);
      const sent = await sendBody(bytes, idempotencyKey, target);
      if (sent.refusal !== null) throw new UnsentError(`The server rejected a request: ${printable(sent.refusal)}.`);
      sum.users += users;
      sum.bytes += bytes.length;
      sum.rejected += sent.rejected.length;
      progress.show({ count: sum.users, bytes: sum.bytes, done: index + 1, total });
    }
  } catch (error) {
    if (!(error instanceof UnsentError)) throw error;
    const rest = sum.users === 0 ? 'Nothing was sent.' : 'A part was sent. To send the rest: sluice demo --yes';
    throw new OperatorError(`${error.message}\n${rest}`);
  } finally {
    progress.end();
  }
  return sum.rejected;
}

function summary({ events, people }: Shop, rejected: number, server: Server): string {
  const page = (view: string): string => dashboardPage(server, view);
  const lines = [
    `Sent ${countOf(events, 'event')} of ${countOf(people, 'customer')} and their visits, over the last 30 days; ${countOf(rejected, 'user')} rejected, on purpose.`,
    '',
    `  ${page('')}?range=30d`,
    '',
    'Things to try:',
    `  - One person, several devices: search for ${PERSON_WITH_MERGE} at ${page('people')}`,
    `  - Two people on one tablet: ${PERSON_WITH_REFUSAL}'s identity says why they stay two`,
    `  - What was rejected, and how to fix it: ${page('rejected')}`,
  ];
  if (server.isLocal) {
    lines.push(
      `  - In the terminal: sluice profile user_id=${PERSON_WITH_MERGE}`,
      `  - One more event: sluice send order_placed --user-id ${PERSON_WITH_MERGE} revenue=42.5 currency=EUR`,
      '',
      'No sign-in yet? sluice invite',
    );
  }
  return `${lines.join('\n')}\n`;
}
