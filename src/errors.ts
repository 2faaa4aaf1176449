/**
 * One table: code → status → retryable → text. Every error response of the HTTP API is made from a row of it, so a
 * status or a text is changed in one place. The texts of `validation_failed`, `unauthorized` and `unavailable` are
 * the specification's own, letter for letter.
 */

interface ErrorKind {
  readonly status: number;
  /** Whether the same request may succeed later. Retryable responses carry `Retry-After`. */
  readonly retryable: boolean;
  /** The `error` field of the body. */
  readonly text: string;
}

export const ERRORS = {
  validation_failed: { status: 400, retryable: false, text: 'validation failed' },
  bad_request: { status: 400, retryable: false, text: 'bad request' },
  unauthorized: { status: 401, retryable: false, text: 'unauthorized' },
  forbidden: { status: 403, retryable: false, text: 'forbidden' },
  not_found: { status: 404, retryable: false, text: 'not found' },
  method_not_allowed: { status: 405, retryable: false, text: 'method not allowed' },
  request_timeout: { status: 408, retryable: true, text: 'request timeout' },
  conflict: { status: 409, retryable: false, text: 'conflict' },
  too_large: { status: 413, retryable: false, text: 'payload too large' },
  overloaded: { status: 429, retryable: true, text: 'service temporarily unavailable' },
  rate_limited: { status: 429, retryable: true, text: 'rate limit exceeded' },
  too_many_attempts: { status: 429, retryable: true, text: 'too many attempts' },
  headers_too_large: { status: 431, retryable: false, text: 'request header fields too large' },
  internal: { status: 500, retryable: true, text: 'internal error' },
  unavailable: { status: 503, retryable: true, text: 'service temporarily unavailable' },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;

/** Sent with every retryable response; clients back off from there. */
export const RETRY_AFTER_SECONDS = 1;

/**
 * A mistake of the person who runs Sluice (a wrong setting, a folder in use, a damaged file). The command prints the
 * message without a stack and exits with 1, so the message says what to do next.
 */
export class OperatorError extends Error {
  override readonly name = 'OperatorError';
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** With its cause, such as a locked file or a dead network. */
export function messageWithCause(error: unknown): string {
  const message = messageOf(error);
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && !message.includes(cause.message) ? `${message}: ${cause.message}` : message;
}
