/**
 * `sluice keys edit`: changes the name, origins or rate limit of a key, also while a server is running. Mistakes are
 * reported all at once.
 */

import { COMMANDS, flagKinds } from './commands.ts';
import { mistakesError, readFlags } from '../config/flags.ts';
import { OperatorError } from '../errors.ts';
import { editKey } from '../keys/edit.ts';
import type { ApiKey, KeyChanges } from '../keys.ts';
import { originsIn, readRateLimit } from './keys-create.ts';
import { type KeysIo, onKeys, unknownKey } from './keys-shell.ts';
import { displayOf, keyJson } from './keys-show.ts';
import { locationName, readSettings } from './location.ts';

const HINT = 'For help: sluice help keys edit';

export async function editCommand(args: readonly string[], io: KeysIo): Promise<number> {
  const now = io.now();
  const flags = readFlags(args, flagKinds(COMMANDS.keys.commands.edit));
  const { config, mistakes } = readSettings(flags, io.env);
  const [id, ...others] = flags.positionals;
  if (id === undefined)
    mistakes.push('no key id given, as in: sluice keys edit key_4fJq0ZpXw2Ab --name "shop backend"');
  mistakes.push(...others.map((word) => `unexpected argument "${word}"; keys are edited one at a time`));
  const [name, origins] = [flags.values.get('name'), flags.values.get('origins')];
  const given = readRateLimit(flags, mistakes);
  const isUnlimited = flags.switches.has('no-rate-limit');
  if (isUnlimited && given !== undefined) mistakes.push('--no-rate-limit and --users-per-second exclude each other');
  const rateLimit = isUnlimited ? null : given;
  const changes: KeyChanges = {
    ...(name !== undefined && { name }),
    ...(origins !== undefined && { origins: origins === 'any' ? [] : originsIn(origins) }),
    ...(rateLimit !== undefined && { rateLimit }),
  };
  if (Object.keys(changes).length === 0) {
    mistakes.push('nothing to change: expected --name, --origins, --users-per-second or --no-rate-limit');
  }
  if (id === undefined || mistakes.length > 0) throw mistakesError(mistakes, HINT);

  const result = (await onKeys(io, config, (store) => editKey(store, { id, changes, now }))) ?? { kind: 'unknown' };
  if (result.kind === 'unknown') throw unknownKey(id, config);
  if (result.kind === 'mistakes') throw mistakesError([...result.mistakes], HINT);
  if (result.kind === 'inactive') {
    throw new OperatorError(
      `The key ${id} in ${locationName(config)} is ${result.state}: only an active key can be edited. ` +
        'To create one: sluice keys create',
    );
  }
  const { key } = result;
  io.out(flags.switches.has('json') ? `${JSON.stringify(keyJson(key, now), undefined, 2)}\n` : description(key));
  return 0;
}

function description(key: ApiKey): string {
  const { name, kind, environment, origins, rateLimit } = key;
  const limit =
    rateLimit === null ? 'none' : `${rateLimit.usersPerSecond} users per second, burst ${rateLimit.burstUsers}`;
  return `Edited the ${kind} key "${name}" (${displayOf(key)}) for ${environment}. Running servers pick up the change within 2 seconds.
  origins     ${origins.length === 0 ? 'any' : origins.join(', ')}
  rate limit  ${limit}
`;
}
