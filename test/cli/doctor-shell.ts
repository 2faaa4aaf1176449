/** What `sluice doctor` works with when a test runs it in its own process: the real parts. */

import { runDoctor } from '../../src/cli/doctor.ts';
import type { DoctorShell } from '../../src/cli/doctor-checks.ts';
import { doctorParts } from '../../src/wiring/doctor-parts.ts';
import { testShell } from './data-shell.ts';

export async function doctorShell(
  data: string,
  changes: Partial<DoctorShell> = {},
): Promise<{ shell: DoctorShell; out: () => string }> {
  const { shell, out } = testShell({ env: { SLUICE_DATA: data, SLUICE_DISK_FREE_MIN: '0' } });
  return { shell: { ...shell, ...(await doctorParts()), ...changes }, out };
}

/** What a person reads, in one line, and the exit code. */
export async function doctorHere(
  data: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ code: number; words: string }> {
  const settings = { SLUICE_DATA: data, SLUICE_DISK_FREE_MIN: '0', ...env };
  const { shell, out } = await doctorShell(data, { env: settings, now: Date.now });
  const code = await runDoctor([], shell);
  return { code, words: out().replaceAll(/\s+/g, ' ') };
}
