/** A real store, log or transaction in which a test replaces a few methods. */

/** Methods that are not replaced run on `real` itself, so that private fields work. */
export function override<T extends object>(real: T, replaced: Partial<T>): T {
  return new Proxy(real, {
    get(target, name) {
      const owner = Object.hasOwn(replaced, name) ? replaced : target;
      const value: unknown = Reflect.get(owner, name, owner);
      return typeof value === 'function' ? value.bind(owner) : value;
    },
  });
}
