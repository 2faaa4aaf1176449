/**
 * A log-linear histogram of times in microseconds: 128 buckets for every doubling, so a quantile is off by less than
 * 0.8 %. Fixed size and no allocation while recording, so that measuring does not disturb what is measured. Times above
 * about 35 minutes fall into the last bucket.
 */

const SUB_BITS = 7;
const SUB = 1 << SUB_BITS;
const OCTAVES = 24;

export interface Quantiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

export class Histogram {
  private readonly counts = new Float64Array(SUB * (OCTAVES + 1));
  private total = 0;
  private maxMicros = 0;

  record(milliseconds: number): void {
    const micros = Math.max(0, Math.round(milliseconds * 1000));
    const index = Math.min(bucketOf(micros), this.counts.length - 1);
    this.counts[index] = (this.counts[index] ?? 0) + 1;
    this.total += 1;
    if (micros > this.maxMicros) this.maxMicros = micros;
  }

  /** In milliseconds. All zero when nothing was recorded. */
  quantiles(): Quantiles {
    const at = (q: number): number => this.quantileMicros(q) / 1000;
    return { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: this.maxMicros / 1000 };
  }

  private quantileMicros(q: number): number {
    const rank = Math.ceil(q * this.total);
    let seen = 0;
    for (let index = 0; index < this.counts.length; index += 1) {
      seen += this.counts[index] ?? 0;
      // The upper edge of a bucket can lie above the largest value in it.
      if (seen >= rank && seen > 0) return Math.min(upperEdge(index), this.maxMicros);
    }
    return 0;
  }
}

function bucketOf(micros: number): number {
  if (micros < SUB) return micros;
  const shift = 31 - Math.clz32(micros) - SUB_BITS;
  return (shift + 1) * SUB + ((micros >>> shift) - SUB);
}

function upperEdge(index: number): number {
  if (index < SUB) return index;
  const shift = Math.floor(index / SUB) - 1;
  return ((index % SUB) + SUB + 1) * 2 ** shift - 1;
}
