/**
 * Lists of names that come again and again, such as those of all properties of a user: a number for each, which one gets
 * to by adding name by name to the empty list. Names are numbers themselves (`known-texts.ts`).
 */

export const EMPTY_LIST = 0;
export const LISTS_MAX = 8_192;
/** More than there are numbers of names. */
const NAMES_END = 65_536;

export class NameLists {
  readonly #text: (name: number) => string;
  /** By list and name that is added to it. */
  readonly #longer = new Map<number, number>();
  /** By list: what was added to it the last time, and what it was then. */
  readonly #lastNames = new Int32Array(LISTS_MAX);
  readonly #lastLonger = new Int32Array(LISTS_MAX);
  #texts: string[] = [''];

  constructor(textOfName: (name: number) => string) {
    this.#text = textOfName;
    this.#lastNames.fill(-1);
  }

  get room(): number {
    return LISTS_MAX - this.#texts.length;
  }

  clear(): void {
    this.#longer.clear();
    this.#texts = [''];
    this.#lastNames.fill(-1);
  }

  /** All names, each with a NUL behind it. */
  text(list: number): string {
    return this.#texts[list] as string;
  }

  /** For lists that are not full. */
  add(list: number, name: number): number {
    if (this.#lastNames[list] === name) return this.#lastLonger[list] as number;
    const place = list * NAMES_END + name;
    let longer = this.#longer.get(place);
    if (longer === undefined) {
      longer = this.#texts.length;
      this.#texts.push(`${this.#texts[list]}${this.#text(name)}\0`);
      this.#longer.set(place, longer);
    }
    this.#lastNames[list] = name;
    this.#lastLonger[list] = longer;
    return longer;
  }
}
