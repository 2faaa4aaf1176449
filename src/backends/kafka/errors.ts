/**
 * What Kafka's errors mean here. The client throws for a response in which any part failed; `responseOf` returns that
 * response, so that callers check the error code of each part. Messages are for operators: the error's name and meaning,
 * no credentials (the client has none in its messages).
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
  group_authorization_failed: 30,
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

/** Retrying helps only after an operator has fixed the login. */
export class LoginFailedError extends LogUnavailableError {
  constructor() {
    super('Kafka rejected the login: the user, the password or the mechanism (sasl) is wrong');
  }
}

export function asUnavailable(error: unknown): LogUnavailableError {
  if (error instanceof LogUnavailableError) return error;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof AuthenticationError && /authentication failed/i.test(cause.message)) {
      return new LoginFailedError();
    }
  }
  const text = errorText(error);
  const [, hint] = HINTS.find(([pattern]) => pattern.test(text)) ?? [];
  return new LogUnavailableError(`Kafka cannot be reached: ${text}${hint === undefined ? '' : ` (${hint})`}`);
}

/** What a message of the client, or of Node's TLS, most often means. */
const HINTS: readonly (readonly [pattern: RegExp, hint: string])[] = [
  [/certificate|altnames/i, 'name the file of its authority with ca=FILE, and the host as the certificate has it'],
  [/TLS/, 'does this port use TLS?'],
  [/SASL/, 'do tls and sasl fit this port, which may require TLS, another mechanism, or a login?'],
  [
    /Connection closed/,
    'is a broker down or hanging? If no server ever reached it: do tls and sasl fit this port, which may require TLS, another mechanism, or a login?',
  ],
];

export function describeCode(code: number): string {
  const name = protocolErrorsCodesById[code];
  const definition = name === undefined ? undefined : protocolErrors[name];
  if (name === undefined || definition === undefined) return `error ${code}`;
  return `${definition.message.replace(/\.$/, '')} (${name})`;
}

/** The messages of an error and its causes, as a part of a sentence. */
export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof AggregateError && error.errors.length > 0) {
    const reasons = new Set(error.errors.map((one) => errorText(one)));
    return [...reasons].join('; ');
  }
  const message = error.message.replace(/\.$/, '');
  return error.cause instanceof Error ? `${message}: ${errorText(error.cause)}` : message;
}

/** The response, also if a part of it is an error. Throws if there was none. */
export async function responseOf<Response extends object>(request: Promise<Response>): Promise<Response> {
  try {
    return await request;
  } catch (error) {
    if (
      error instanceof Error &&
      'response' in error &&
      typeof error.response === 'object' &&
      error.response !== null
    ) {
      return error.response as Response;
    }
    throw error;
  }
}
