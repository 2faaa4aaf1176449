/**
 * Client texts in a form that every store can hold: PostgreSQL cannot store U+0000 in text. Accepted texts never
 * contain it; rejected ones, and messages about them, may.
 */

export function withoutNul(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\u{FFFD}') : text;
}
