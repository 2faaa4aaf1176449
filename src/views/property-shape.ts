/**
 * All names of what is said of a person, as one text: the same for the same names in the same order, and only for them.
 * Whoever prepares a propertyUpdate and whoever reads one from the store must write the same text.
 */

/**
 * Names are given each with a NUL behind it, which no name holds. But a name may be empty, so a NUL cannot tell where
 * fields end; how long they are does.
 */
export function propertyShape(fields: string, properties: string): string {
  return `${fields.length}\0${fields}${properties}`;
}
