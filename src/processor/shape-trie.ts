/**
 * A trie of frequent lists of names, such as those of all properties of a user: a list is reached by adding name by
 * name to the empty one, and its text is made once. Names are interned (`json/string-interner.ts`).
 */

import type { StringInterner } from '../json/string-interner.ts';
import { propertyShape } from '../views/property-shape.ts';

/** A list of names. */
export class Shape {
  /** All names, each with a NUL behind it. */
  readonly names: string;
  readonly longer = new Map<number, Shape>();
  /** What was added the last time, and what it was then. */
  lastName = -1;
  lastLonger: Shape = this;
  /** By the properties that were set together with these fields: all names of both. And those of the last time. */
  readonly together = new Map<Shape, string>();
  lastProperties: Shape | null = null;
  lastTogether = '';

  constructor(names: string) {
    this.names = names;
  }
}

export class ShapeTrie {
  readonly #names: StringInterner;
  #empty = new Shape('');
  #size = 1;

  constructor(names: StringInterner) {
    this.#names = names;
  }

  get empty(): Shape {
    return this.#empty;
  }

  /** How many lists there are. */
  get size(): number {
    return this.#size;
  }

  clear(): void {
    this.#empty = new Shape('');
    this.#size = 1;
  }

  add(shape: Shape, name: number): Shape {
    if (shape.lastName === name) return shape.lastLonger;
    let longer = shape.longer.get(name);
    if (longer === undefined) {
      longer = new Shape(`${shape.names}${this.#names.string(name)}\0`);
      shape.longer.set(name, longer);
      this.#size++;
    }
    shape.lastName = name;
    shape.lastLonger = longer;
    return longer;
  }

  /** Identifies the set of names that a user sets: the same string for the same names. */
  namesOf(fields: Shape, properties: Shape): string {
    if (fields.lastProperties === properties) return fields.lastTogether;
    let names = fields.together.get(properties);
    if (names === undefined) {
      names = propertyShape(fields.names, properties.names);
      fields.together.set(properties, names);
      this.#size++;
    }
    fields.lastProperties = properties;
    fields.lastTogether = names;
    return names;
  }
}
