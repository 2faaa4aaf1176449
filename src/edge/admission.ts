/**
 * Bounds the memory that requests hold. Bytes are reserved before a body is read and released once the response is
 * decided; when a reservation does not fit, the response is 503. Large bodies together may take only a part of the
 * whole, so that a few slow uploads cannot keep the many small requests out.
 */

/** What Node keeps for a request besides its body: sockets, parser, headers, promises. */
const REQUEST_OVERHEAD_BYTES = 4_096;
const LARGE_BYTES_MIN = 256 * 1024;
const LARGE_SHARE = 0.75;

export class InFlight {
  readonly bytesMax: number;
  bytes = 0;
  /** The part of `bytes` that is reserved for large bodies. */
  largeBytes = 0;
  requests = 0;
  /** Complete requests that wait for the log. */
  appending = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** Undefined when that does not fit now. */
  open(bytes: number): Reservation | undefined {
    const reservation = new Reservation(this);
    if (!reservation.growTo(bytes)) return undefined;
    this.requests += 1;
    return reservation;
  }
}

export class Reservation {
  readonly #inFlight: InFlight;
  /** 0 before and after it holds anything. */
  #bytes = 0;

  constructor(inFlight: InFlight) {
    this.#inFlight = inFlight;
  }

  /** Makes sure that `bytes` of body are reserved; false when they do not fit now. */
  growTo(bytes: number): boolean {
    const wanted = bytes + REQUEST_OVERHEAD_BYTES;
    return wanted <= this.#bytes || this.#resize(wanted);
  }

  release(): void {
    if (this.#bytes === 0) return;
    this.#resize(0);
    this.#inFlight.requests -= 1;
  }

  #resize(to: number): boolean {
    const inFlight = this.#inFlight;
    const more = to - this.#bytes;
    const moreLarge = largeBytesOf(to) - largeBytesOf(this.#bytes);
    if (more > 0) {
      if (inFlight.bytes + more > inFlight.bytesMax) return false;
      if (moreLarge > 0 && inFlight.largeBytes + moreLarge > inFlight.bytesMax * LARGE_SHARE) return false;
    }
    inFlight.bytes += more;
    inFlight.largeBytes += moreLarge;
    this.#bytes = to;
    return true;
  }
}

function largeBytesOf(bytes: number): number {
  return bytes >= LARGE_BYTES_MIN ? bytes : 0;
}
