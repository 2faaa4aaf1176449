/** Lets work that writes no output find stdout to be a terminal or not, under the variables that decide about colour. */

export function withStdout<T>(isTty: boolean, env: Readonly<Record<string, string>>, work: () => T): T {
  const { stdout, env: envBefore } = process;
  const isTtyBefore = stdout.isTTY;
  stdout.isTTY = isTty;
  process.env = env;
  try {
    return work();
  } finally {
    stdout.isTTY = isTtyBefore;
    process.env = envBefore;
  }
}
