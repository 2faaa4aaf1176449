/**
 * How quiet the machine was during a measurement: the cores that were really there (`capacity.ts`) and the cores that
 * other programs used. A measurement on a machine that was too busy is noisy: it is shown, marked, and not believed.
 */

import { availableParallelism } from 'node:os';

export interface Noise {
  /** The least that was there before, within or after the measurement. */
  readonly cores: number;
  /** Used by programs that are neither the server nor the load generator. */
  readonly otherCores: number;
}

const OTHER_CORES_MAX = 0.15;
/** Of the machine's cores. */
const CAPACITY_SHARE_MIN = 0.85;

export function isNoisy({ cores, otherCores }: Noise): boolean {
  return otherCores > OTHER_CORES_MAX || cores < availableParallelism() * CAPACITY_SHARE_MIN;
}

/** Of several measurements the worst. */
export function worstNoise(all: readonly Noise[]): Noise {
  return {
    cores: Math.min(...all.map(({ cores }) => cores)),
    otherCores: Math.max(...all.map(({ otherCores }) => otherCores)),
  };
}

export function noiseText(noise: Noise): string {
  return (
    `${isNoisy(noise) ? 'NOISY, the machine was busy with other things: ' : ''}cores that were there ` +
    `${noise.cores.toFixed(1)} of ${availableParallelism()}, used by other programs ${noise.otherCores.toFixed(2)}`
  );
}
