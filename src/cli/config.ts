/**
 * `sluice config`: the effective settings, where each came from and what it does. Reads the same environment and flags
 * as `sluice serve`, so that it shows what serve would do; starts nothing and touches no file.
 */

import { describeConfig, loadConfig } from '../config/config.ts';
import type { Shell } from './shell.ts';
import { dim, indented, renderTable, wrap } from './table.ts';

const DESCRIPTION_COLUMNS = 92;

export async function runConfig(args: readonly string[], io: Pick<Shell, 'out' | 'env'>): Promise<number> {
  const settingArgs = args.filter((arg) => arg !== '--json');
  const { config, sources } = loadConfig({ env: io.env, args: settingArgs });
  const rows = describeConfig(config, sources);
  if (settingArgs.length < args.length) {
    io.out(indented(rows));
    return 0;
  }
  const cells = rows.map(({ flag, env, value, source }) => [flag, env, value, source]);
  const [header, ...lines] = renderTable(['flag', 'variable', 'value', 'from'], cells).split('\n');
  io.out(`${header}\n`);
  for (const [i, line] of lines.entries()) {
    io.out(`${line}\n`);
    const description = wrap(rows[i]?.description ?? '', DESCRIPTION_COLUMNS);
    for (const text of description) io.out(`    ${dim(text)}\n`);
  }
  return 0;
}
