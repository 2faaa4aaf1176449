/**
 * What Kafka's errors mean here. The client throws for an answer in which any part failed; `answered` gives that answer
 * back, so that each part is judged by its own code. Texts are for operators: a name, what it means, no addresses with
 * secrets (the client never has them in its messages).
 */

import { AuthenticationError, protocolErrors, protocolErrorsCodesById } from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';

/** Numbers of Kafka's protocol. */
export const CODE = {
  none: 0,
  offset_out_of_range: 1,
  corrupt_message: 2,
  unknown_topic_or_partition: 3,
  message_too_large: 10,
  coordinator_loading: 14,
  coordinator_not_available: 15,
  not_coordinator: 16,
  record_list_too_large: 18,
  not_enough_replicas: 19,
  unknown_member_id: 25,
  topic_authorization_failed: 29,
  cluster_authorization_failed: 31,
  invalid_timestamp: 32,
  unsupported_version: 35,
  topic_already_exists: 36,
  invalid_replication_factor: 38,
  policy_violation: 44,
  out_of_order_sequence: 45,
  duplicate_sequence: 46,
  invalid_producer_epoch: 47,
  unknown_producer_id: 59,
  invalid_record: 87,
  unknown_topic_id: 100,
  fenced_member_epoch: 110,
  stale_member_epoch: 113,
} as const;

/** Waiting does not help against it, unless an operator fixes the login in Kafka. */
export class LoginRefusedError extends LogUnavailableError {
  constructor() {
    super('Kafka does not let this user in: the user, the password or the way to sign in (sasl) is wrong');
  }
}

/** What was thrown, as whoever waits for the log is to see it. */
export function unreachable(error: unknown): LogUnavailableError {
  if (error instanceof LogUnavailableError) return error;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof AuthenticationError && /authentication failed/i.test(cause.message)) {
      return new LoginRefusedError();
    }
  }
  return new LogUnavailableError(`Kafka cannot be reached: ${reasonOf(error)}`);
}

/** In words: what a code means, and Kafka's name for it. */
export function wordsOf(code: number): string {
  const name = protocolErrorsCodesById[code];
  const definition = name === undefined ? undefined : protocolErrors[name];
  if (name === undefined || definition === undefined) return `error ${code}`;
  return `${definition.message.replace(/\.$/, '')} (${name})`;
}

/** Why something failed, from what was thrown: the deepest cause that says something. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof AggregateError && error.errors.length > 0) {
    const reasons = new Set(error.errors.map((one) => reasonOf(one)));
    return [...reasons].join('; ');
  }
  const said = error.message.replace(/\.$/, '');
  return error.cause instanceof Error ? `${said}: ${reasonOf(error.cause)}` : said;
}

/** The answer, also where some part of it is an error. Throws where there was none. */
export async function answered<Answer extends object>(asking: Promise<Answer>): Promise<Answer> {
  try {
    return await asking;
  } catch (error) {
    if (
      error instanceof Error &&
      'response' in error &&
      typeof error.response === 'object' &&
      error.response !== null
    ) {
      return error.response as Answer;
    }
    throw error;
  }
}
