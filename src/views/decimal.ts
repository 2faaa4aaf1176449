/**
 * Decimal numbers of any length, for sums of money: the digits of an amount as JSON shows it, so that 0.1 three times is
 * 0.3. Sums are exact, so they do not depend on the order of the amounts, and subtracting one undoes adding it. Pure.
 *
 * An amount is within the range of a double, so a sum has less than 700 digits.
 */

export class Decimal {
  static readonly ZERO = new Decimal(0n, 0);
  /** The number is `units` / 10 ^ `scale`. */
  readonly #units: bigint;
  readonly #scale: number;

  private constructor(units: bigint, scale: number) {
    this.#units = units;
    this.#scale = scale;
  }

  /** From a finite number, or from what `toString` returned. */
  static of(number: number | string): Decimal {
    const [mantissa = '', exponent = '0'] = String(number).split('e');
    const [whole = '', fraction = ''] = mantissa.split('.');
    const units = BigInt(whole + fraction);
    const scale = fraction.length - Number(exponent);
    return scale >= 0 ? new Decimal(units, scale) : new Decimal(units * 10n ** BigInt(-scale), 0);
  }

  plus(other: Decimal): Decimal {
    const scale = Math.max(this.#scale, other.#scale);
    return new Decimal(this.#unitsAt(scale) + other.#unitsAt(scale), scale);
  }

  minus(other: Decimal): Decimal {
    return this.plus(new Decimal(-other.#units, other.#scale));
  }

  #unitsAt(scale: number): bigint {
    return scale === this.#scale ? this.#units : this.#units * 10n ** BigInt(scale - this.#scale);
  }

  toString(): string {
    if (this.#scale === 0) return String(this.#units);
    const sign = this.#units < 0n ? '-' : '';
    const digits = String(this.#units < 0n ? -this.#units : this.#units).padStart(this.#scale + 1, '0');
    return `${sign}${digits.slice(0, -this.#scale)}.${digits.slice(-this.#scale)}`;
  }

  /** The nearest double; the largest one for what is larger. */
  toNumber(): number {
    return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, Number(this.toString())));
  }
}
