/**
 * Questions about single strings, asked on the hot path: how long, blank or not, fit to be stored or not. A character
 * is a Unicode code point here, so that an emoji counts once, as it does for the person who typed it.
 */

/** Whether the text has more than `charactersMax` code points; counts only when its length leaves that open. */
export function isLongerThan(text: string, charactersMax: number): boolean {
  if (text.length <= charactersMax) return false;
  if (text.length > charactersMax * 2) return true;
  let characters = 0;
  for (let at = 0; at < text.length; at++) {
    characters++;
    if ((text.codePointAt(at) ?? 0) > 0xffff) at++;
  }
  return characters > charactersMax;
}

export function isBlank(text: string): boolean {
  const first = text.charCodeAt(0);
  // Nearly every name starts with printable ASCII, which settles it without a call.
  if (first > 0x20 && first < 0x7f) return false;
  return text.trim() === '';
}

/** False for U+0000, which PostgreSQL cannot hold, and for half a surrogate pair, which UTF-8 cannot. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}
