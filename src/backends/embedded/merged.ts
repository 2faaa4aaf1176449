/**
 * Merges sorted streams into one; each is read one value ahead. Of equal values, those of earlier streams come first.
 */

export function* merged<Value>(
  streams: readonly Iterator<Value, unknown>[],
  compare: (one: Value, other: Value) => number,
): Generator<Value, undefined> {
  const heads = streams.map((stream) => ({ stream, next: stream.next() }));
  try {
    for (;;) {
      let first: { readonly stream: Iterator<Value, unknown>; next: IteratorYieldResult<Value> } | undefined;
      for (const head of heads) {
        if (head.next.done !== true && (first === undefined || compare(head.next.value, first.next.value) < 0)) {
          first = head as typeof first;
        }
      }
      if (first === undefined) return;
      yield first.next.value;
      first.next = first.stream.next() as IteratorYieldResult<Value>;
    }
  } finally {
    // An unfinished statement keeps a read transaction open.
    for (const { stream } of heads) stream.return?.();
  }
}
