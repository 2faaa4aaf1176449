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
  readonly #bytesMax: number;
  readonly #largeBytesMax: number;
  bytes = 0;
  requests = 0;
  /** Complete requests that wait for the log. */
  appending = 0;
  #largeBytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
    this.#largeBytesMax = Math.floor(bytesMax * LARGE_SHARE);
  }

  open(bytes: number): Reservation | undefined {
    const reservation = new Reservation(this);
    if (!reservation.growTo(bytes)) return undefined;
    this.requests += 1;
    return reservation;
  }

  /** Only for `Reservation`: changes one reservation from one size to another, if that fits. */
  resize(from: number, to: number): boolean {
    const largeFrom = from >= LARGE_BYTES_MIN ? from : 0;
    const largeTo = to >= LARGE_BYTES_MIN ? to : 0;
    if (to > from) {
      if (this.bytes - from + to > this.#bytesMax) return false;
      if (largeTo > 0 && this.#largeBytes - largeFrom + largeTo > this.#largeBytesMax) return false;
    }
    this.bytes += to - from;
    this.#largeBytes += largeTo - largeFrom;
    return true;
  }

  /** Only for `Reservation`. */
  onRelease(): void {
    this.requests -= 1;
  }
}

export class Reservation {
  readonly #inFlight: InFlight;
  #bytes = 0;
  #open = true;

  constructor(inFlight: InFlight) {
    this.#inFlight = inFlight;
  }

  /** Makes sure that `bytes` of body are reserved; false when they do not fit now. */
  growTo(bytes: number): boolean {
    const wanted = bytes + REQUEST_OVERHEAD_BYTES;
    if (wanted <= this.#bytes) return true;
    if (!this.#inFlight.resize(this.#bytes, wanted)) return false;
    this.#bytes = wanted;
    return true;
  }

  /** Gives everything back; a second call does nothing. */
  release(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#inFlight.resize(this.#bytes, 0);
    this.#bytes = 0;
    this.#inFlight.onRelease();
  }
}
