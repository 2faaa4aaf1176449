/**
 * Flags whose value is one of a few. A value that is not among them is reported with the ones that are, and with the
 * one that was probably meant. `--env` takes short forms as well.
 */

import { ENVIRONMENTS, type Environment } from '../model.ts';
import { type FlagsRead, suggestion } from '../config/flags.ts';

const SHORT_ENVIRONMENTS: Readonly<Record<string, Environment>> = { prod: 'production', dev: 'development' };
const SHORT_FORMS = Object.keys(SHORT_ENVIRONMENTS);
/** All that `--env` takes. */
export const ENVIRONMENT_CHOICES: readonly string[] = [...ENVIRONMENTS, ...SHORT_FORMS];
export const ENVIRONMENTS_EXPECTED = `${ENVIRONMENTS.join(' or ')}, or ${SHORT_FORMS.join(' or ')} for short`;

/** Undefined where it is missing or wrong, which is then among the mistakes. */
export function readChoice<T extends string>(
  flags: FlagsRead,
  flag: string,
  choices: readonly T[],
  preset?: T,
): T | undefined {
  const given = flags.values.get(flag) ?? preset;
  const chosen = choices.find((choice) => choice === given);
  if (chosen === undefined) {
    flags.mistakes.push(wrongChoice(flag, given, `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`, choices));
  }
  return chosen;
}

/** Undefined where it is not given; where it is wrong, that is among the mistakes. */
export function readEnvironment(flags: FlagsRead): Environment | undefined {
  const given = flags.values.get('env');
  if (given === undefined) return undefined;
  const short = Object.hasOwn(SHORT_ENVIRONMENTS, given) ? SHORT_ENVIRONMENTS[given] : undefined;
  const chosen = short ?? ENVIRONMENTS.find((environment) => environment === given);
  if (chosen === undefined) flags.mistakes.push(wrongChoice('env', given, ENVIRONMENTS_EXPECTED, ENVIRONMENT_CHOICES));
  return chosen;
}

function wrongChoice(flag: string, given: string | undefined, expected: string, choices: readonly string[]): string {
  return given === undefined
    ? `--${flag} is missing; expected ${expected}`
    : `--${flag} is "${given}"; expected ${expected}${suggestion(given, choices)}`;
}
