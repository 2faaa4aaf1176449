/**
 * Texts of clients in a form that every store can hold: PostgreSQL's texts have no U+0000. Accepted texts never do; what
 * was rejected, and messages about it, may.
 */

export function withoutNul(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\u{FFFD}') : text;
}
