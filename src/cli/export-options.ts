/**
 * The options of `sluice export`, read from the command line, with all mistakes reported at once.
 */

import { readChoice } from './choices.ts';
import { COMMANDS, EXPORT_FORMATS, EXPORT_KINDS, flagKinds } from './commands.ts';
import { type FlagsRead, mistakesError, readFlags } from '../config/flags.ts';
import type { RequestedExport } from './export-file.ts';
import { MOMENT_EXPECTED, readMoment } from './local-time.ts';
import type { Shell } from './shell.ts';
import { type DataSource, readDataSource } from './tenant.ts';

const HINT = 'For help: sluice help export';

export interface ExportOptions {
  readonly dataSource: DataSource;
  readonly format: (typeof EXPORT_FORMATS)[number];
  readonly what: (typeof EXPORT_KINDS)[number];
  readonly from: number | null;
  readonly to: number | null;
  readonly eventName: string | null;
  readonly out: string | null;
  readonly restart: boolean;
  readonly overwrite: boolean;
  /** Csv without apostrophes and escapes. */
  readonly raw: boolean;
  /** With what the tracking plan marks as personal. */
  readonly personal: boolean;
  readonly json: boolean;
  /** As it was written: what makes two exports the same. */
  readonly asked: RequestedExport;
}

export function readExportOptions(args: readonly string[], shell: Shell): ExportOptions {
  const flags = readFlags(args, flagKinds(COMMANDS.export));
  const dataSource = readDataSource(flags, shell);
  const { mistakes } = dataSource;
  mistakes.push(
    ...flags.positionals.map((word) => `unexpected argument "${word}"; a file to write to: --out "${word}"`),
  );
  const format = readChoice(flags, 'format', EXPORT_FORMATS, mistakes);
  const what = readChoice(flags, 'what', EXPORT_KINDS, mistakes, 'events');
  const now = shell.now();
  const from = readTime('from', flags, now, mistakes);
  const to = readTime('to', flags, now, mistakes);
  if (from !== null && to !== null && from >= to) mistakes.push('--from is not before --to');
  const eventName = flags.values.get('event') ?? null;
  const out = flags.values.get('out') ?? null;
  if (what === 'profiles' && (from !== null || to !== null || eventName !== null)) {
    mistakes.push('--from, --to and --event choose among events; with --what profiles all are exported');
  }
  const raw = flags.switches.has('raw');
  if (raw && format !== undefined && format !== 'csv') {
    mistakes.push(`--raw is for csv; ${format} always holds the data as it is`);
  }
  if (format === 'parquet' && out === null) mistakes.push('parquet needs a file; say which with --out FILE');
  if (out === null && flags.switches.has('json')) {
    mistakes.push('--json is for the summary of an export to a file; for JSON on stdout: --format ndjson');
  }
  if (format === undefined || what === undefined || mistakes.length > 0) throw mistakesError(mistakes, HINT);
  return {
    dataSource,
    format,
    what,
    from,
    to,
    eventName,
    out,
    restart: flags.switches.has('restart'),
    overwrite: flags.switches.has('overwrite'),
    raw,
    personal: flags.switches.has('personal'),
    json: flags.switches.has('json'),
    asked: {
      format,
      what,
      from: flags.values.get('from') ?? null,
      to: flags.values.get('to') ?? null,
      event: eventName,
      raw: raw ? 'yes' : null,
      personal: flags.switches.has('personal') ? 'yes' : null,
    },
  };
}

function readTime(flag: string, flags: FlagsRead, now: number, mistakes: string[]): number | null {
  const given = flags.values.get(flag);
  if (given === undefined) return null;
  const time = readMoment(given, now);
  if (time === undefined) mistakes.push(`--${flag} is "${given}"; expected ${MOMENT_EXPECTED}`);
  return time ?? null;
}
