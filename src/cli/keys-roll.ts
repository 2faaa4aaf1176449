/**
 * `sluice keys roll`: replaces a key without downtime. The new key is shown only once; the old one works until the
 * overlap has passed. Mistakes are reported all at once, before anything is opened.
 */

import { formatDuration, parseDurationMs } from '../config/values.ts';
import { OperatorError } from '../errors.ts';
import { unusedKey } from '../keys/create.ts';
import { OVERLAP_MS_MAX, rollKey } from '../keys/roll.ts';
import { COMMANDS, flagKinds } from './commands.ts';
import { mistakesError, readFlags } from '../config/flags.ts';
import { type KeysIo, onKeys, unknownKey } from './keys-shell.ts';
import { displayOf, keyJson, minuteOf } from './keys-show.ts';
import { locationName, readSettings } from './location.ts';
import type { Ink } from './table.ts';

const OVERLAP_DEFAULT = '24h';
const HINT = 'For help: sluice help keys roll';

export async function rollCommand(args: readonly string[], io: KeysIo, ink: Ink): Promise<number> {
  const now = io.now();
  const flags = readFlags(args, flagKinds(COMMANDS.keys.commands.roll));
  const { config, mistakes } = readSettings(flags, io.env);
  const [id, ...others] = flags.positionals;
  if (id === undefined) mistakes.push('no key id given, as in: sluice keys roll key_4fJq0ZpXw2Ab');
  mistakes.push(...others.map((word) => `unexpected argument "${word}"; keys are rolled one at a time`));
  const overlap = flags.values.get('overlap') ?? OVERLAP_DEFAULT;
  const overlapMs = parseDurationMs(overlap);
  const isOverlap = overlapMs !== undefined && overlapMs >= 0 && overlapMs <= OVERLAP_MS_MAX;
  if (!isOverlap) {
    const most = formatDuration(OVERLAP_MS_MAX);
    mistakes.push(`--overlap is "${overlap}"; expected a time from 0 to ${most}, such as ${OVERLAP_DEFAULT}`);
  }
  if (id === undefined || !isOverlap || mistakes.length > 0) throw mistakesError(mistakes, HINT);

  const result = (await onKeys(io, config, (store) => rollKey(store, { id, overlapMs, now }))) ?? { kind: 'unknown' };
  if (result.kind === 'unknown') throw unknownKey(id, config);
  if (result.kind === 'inactive') {
    throw new OperatorError(
      `The key ${id} in ${locationName(config)} is ${result.state}: only an active key can be rolled. ` +
        'To create one: sluice keys create',
    );
  }
  const { key, row, old } = result;
  if (flags.switches.has('json')) {
    const created = keyJson(unusedKey(row, old.accountName), now);
    io.out(`${JSON.stringify({ key, ...created, old: keyJson(old, now) }, undefined, 2)}\n`);
    return 0;
  }
  const expiresAt = old.expiresAt ?? now;
  const until =
    expiresAt <= now
      ? `The old key ${old.id} has ended; running servers reject it within 2 seconds.`
      : `The old key ${old.id} works until ${minuteOf(expiresAt)} UTC. To end it sooner: sluice keys revoke ${old.id}`;
  io.out(`Rolled the ${old.kind} key "${old.name}" (${displayOf(old)}) of account "${old.accountName}" for ${old.environment}.
The new key (${row.id}):

  ${ink.bold(key)}

Shown only once: it cannot be retrieved later. Running servers accept it at once.
${until}
`);
  return 0;
}
