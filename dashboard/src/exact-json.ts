/**
 * JSON in which numbers keep their digits. A double holds every number of up to 15 digits; longer ones that it would
 * change become an `ExactNumber`, which shows and serialises as what the client wrote. Pure. In a browser that does
 * not give the source of a number, they come out as doubles.
 */

/** A number as the client wrote it, where a double would lose digits. Shows and serialises as those digits. */
export class ExactNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }

  toJSON(): unknown {
    return 'rawJSON' in JSON && typeof JSON.rawJSON === 'function' ? JSON.rawJSON(this.text) : Number(this.text);
  }
}

const DIGITS_HELD = 15;

/** Only texts with longer runs than a double holds need the slow way. */
const LONG_NUMBER = /[0-9][0-9.eE+-]{15}|[eE][+-]?[0-9]{3}/;

/** As `JSON.parse`, but with `ExactNumber` for what a double cannot hold; revenue of events stays a plain number. */
export function parseExactly(text: string): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  function revive(this: unknown, key: string, value: unknown, context?: { source?: string }): unknown {
    const source = context?.source;
    if (typeof value !== 'number' || source === undefined || source === String(value)) return value;
    if (isHeld(value, source)) return value;
    const isOfEvent = (key === 'revenue' || key === 'event_value') && Object.hasOwn(Object(this), 'trace_id');
    return isOfEvent ? value : new ExactNumber(source);
  }
  return JSON.parse(text, revive);
}

/** Whether the double is the number that was written, perhaps in another form: `1.10`, `1e3`. */
function isHeld(value: number, source: string): boolean {
  const mantissa = source.split(/e/i, 1)[0] ?? '';
  const isVanished = value === 0 && /[1-9]/.test(mantissa);
  return Number.isFinite(value) && !isVanished && mantissa.replace(/[^0-9]/g, '').length <= DIGITS_HELD;
}
