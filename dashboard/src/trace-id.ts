/**
 * What people paste when they look for a trace: a trace_id with white space around it, in capitals, or the id of an
 * event, which begins with it (`<trace_id>.<user>.<event>`). Pure.
 */

const TRACE = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.[0-9]+){0,2}$/;

/** Undefined if it is none. */
export function traceIdOf(pasted: string): string | undefined {
  const text = pasted.trim().replace(/^["']|["',]+$/g, '');
  return TRACE.exec(text.toLowerCase())?.[1];
}
