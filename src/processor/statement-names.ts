/**
 * All names of what a user says of a person, as a word: the same lists of names come again and again.
 */

import { saidNames } from '../stored/said-names.ts';
import type { KnownTexts } from './known-texts.ts';
import { EMPTY_LIST, LISTS_MAX, NameLists } from './name-lists.ts';
import { NumberedWords } from './numbered-words.ts';
import type { Packer } from './packer.ts';
import { setNames, setNothingSaid } from './packing.ts';

const STATEMENTS_MAX = 4_096;
const NO_LISTS = -1;

export class StatementNames {
  readonly lists: NameLists;
  readonly #packer: Packer;
  /** By the list of fields and that of properties. */
  readonly #numbers = new Map<number, number>();
  #texts: string[] = [];
  readonly #words: NumberedWords;
  #lastLists = NO_LISTS;
  #last = 0;

  constructor(packer: Packer, names: KnownTexts) {
    this.lists = new NameLists((name) => names.text(name));
    this.#packer = packer;
    this.#words = new NumberedWords(packer, STATEMENTS_MAX);
  }

  /** For the names of one user, of which there may be as many among fields as among properties. */
  get room(): number {
    return Math.min(this.lists.room / 2, STATEMENTS_MAX - this.#texts.length);
  }

  clear(): void {
    this.lists.clear();
    this.#numbers.clear();
    this.#texts = [];
    this.#words.clear();
    this.#lastLists = NO_LISTS;
  }

  set(user: number, fields: number, properties: number): void {
    if (fields === EMPTY_LIST && properties === EMPTY_LIST) {
      setNothingSaid(this.#packer, user);
      return;
    }
    const lists = fields * LISTS_MAX + properties;
    if (lists !== this.#lastLists) {
      this.#last = this.#numbers.get(lists) ?? this.#add(lists, fields, properties);
      this.#lastLists = lists;
    }
    setNames(this.#packer, user, this.#words.word(this.#last, this.#texts[this.#last] as string), false);
  }

  #add(lists: number, fields: number, properties: number): number {
    const number = this.#texts.length;
    this.#texts.push(saidNames(this.lists.text(fields), this.lists.text(properties)));
    this.#numbers.set(lists, number);
    return number;
  }
}
