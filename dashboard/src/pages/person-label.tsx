/**
 * A person, by the best name there is, once it is known, and by the end of the profile id until then. Names are looked up a few at a time, so that a burst of events does not become a burst of requests, and are
 * kept while the page is open. What is not found, or not found out, stays an id.
 */

import { type ReactNode, useCallback, useSyncExternalStore } from 'react';
import { get } from '../api.ts';
import { nameOf } from '../person-name.ts';
import { useEnvironment } from '../router.tsx';
import type { Environment, Profile } from '../types.ts';

const LOOKUP_PAUSE_MS = 40;
const WAITING_MAX = 100;
const KEPT_MAX = 2_000;
const ID_END_CHARACTERS = 6;

interface Wanted {
  readonly environment: Environment;
  readonly profileId: string;
}

const names = new Map<string, string | null>();
const listeners = new Set<() => void>();
let waiting: Wanted[] = [];
let isLooking = false;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Undefined until it is known; null when there is no name. Asking for one that is not known gets it looked up. */
function knownName(environment: Environment, profileId: string): string | null | undefined {
  return names.get(`${environment} ${profileId}`);
}

function want(wanted: Wanted): void {
  const isWaiting = waiting.some(({ profileId }) => profileId === wanted.profileId);
  if (isWaiting || knownName(wanted.environment, wanted.profileId) !== undefined) return;
  // The newest first, and the oldest forgotten: those are further down, or gone.
  waiting = [wanted, ...waiting].slice(0, WAITING_MAX);
  if (!isLooking) void lookUp();
}

async function lookUp(): Promise<void> {
  isLooking = true;
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const { environment, profileId } = next;
    keep(`${environment} ${profileId}`, await askName(environment, profileId));
    for (const listener of listeners) listener();
    await new Promise((resolve) => setTimeout(resolve, LOOKUP_PAUSE_MS));
  }
  isLooking = false;
}

async function askName(environment: Environment, profileId: string): Promise<string | null> {
  try {
    return nameOf(await get<Profile>(environment, `/profiles/${profileId}`));
  } catch {
    return null;
  }
}

function keep(key: string, name: string | null): void {
  const [oldest] = names.keys();
  if (names.size >= KEPT_MAX && oldest !== undefined) names.delete(oldest);
  names.set(key, name);
}

export function PersonLabel({ profileId }: { profileId: string }): ReactNode {
  const environment = useEnvironment();
  const subscribeAndAsk = useCallback(
    (listener: () => void) => {
      want({ environment, profileId });
      return subscribe(listener);
    },
    [environment, profileId],
  );
  const name = useSyncExternalStore(subscribeAndAsk, () => knownName(environment, profileId));
  if (typeof name === 'string') return name;
  return <span className="mono">…{profileId.slice(-ID_END_CHARACTERS)}</span>;
}
