/**
 * All names that a property update sets, as one text: the same for the same names in the same order, and only for them.
 * Each name is followed by a NUL, which no name contains. A name may be empty, so a NUL cannot mark where the fields
 * end; their length does.
 */
export function propertyShape(fields: string, properties: string): string {
  return `${fields.length}\0${fields}${properties}`;
}
