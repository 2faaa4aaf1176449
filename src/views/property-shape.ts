/**
 * All names that a property update sets, as one text: the same for the same names in the same order, and only for them.
 * Both ways to prepare a record (`processor/prepare.ts`, `processor/shape-trie.ts`) must give the same text.
 */

/**
 * Names are given each with a NUL behind it, which no name holds. But a name may be empty, so a NUL cannot show where
 * fields end; how long they are does.
 */
export function propertyShape(fields: string, properties: string): string {
  return `${fields.length}\0${fields}${properties}`;
}
