/**
 * Gets the jars of the Kafka that the tests start: those that pom.xml names, by Maven, into a cache that outlives the
 * checkout. The folder appears in the cache complete or not at all, so several processes may get it at once.
 */

import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { removeFolder } from '../server.ts';
import { findTool } from '../tools.ts';

const run = promisify(execFile);

const POM = fileURLToPath(new URL('pom.xml', import.meta.url));
/** Some 80 MB with Maven's own parts, over a slow line. */
const GET_MS_MAX = 600_000;
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sluice');

/** The folder that has, or will have, the jars of this very pom.xml. */
export function kafkaJarsFolder(): string {
  const pom = readFileSync(POM, 'utf8');
  const version = /<kafka\.version>([^<]+)</.exec(pom)?.[1] ?? 'unknown';
  return join(CACHE, `kafka-${version}-${hash('sha256', pom).slice(0, 8)}`);
}

/** The programs that starting Kafka takes on this machine, as it is now. */
export function kafkaTools(): string[] {
  return existsSync(kafkaJarsFolder()) ? ['java'] : ['java', 'mvn'];
}

/** Why Kafka cannot be started here; undefined if nothing speaks against it. */
export function kafkaHindrance(): string | undefined {
  const missing = kafkaTools().filter((name) => findTool(name) === undefined);
  return missing.length === 0 ? undefined : `${missing.join(' and ')} not found`;
}

/** Returns the folder with the jars, which are fetched if this machine has none yet. */
export async function ensureKafkaJars(report: (line: string) => void): Promise<string> {
  const folder = kafkaJarsFolder();
  if (existsSync(folder)) return folder;
  const maven = findTool('mvn');
  if (maven === undefined)
    throw new Error('the jars of Kafka are not in the cache, and mvn, which gets them, not found');
  report(`Tests need Kafka: Maven gets it into ${folder}…`);
  mkdirSync(CACHE, { recursive: true });
  const temporary = mkdtempSync(`${folder}-`);
  try {
    const options = [`-DoutputDirectory=${temporary}`, '-DincludeScope=runtime'];
    await run(maven, ['-B', '-q', '-f', POM, 'dependency:copy-dependencies', ...options], { timeout: GET_MS_MAX });
    renameSync(temporary, folder);
  } catch (error) {
    removeFolder(temporary);
    // Another process was quicker.
    if (existsSync(folder)) return folder;
    const said = (error as { stdout?: string }).stdout?.trim().split('\n')[0] ?? '';
    throw new Error(`Maven could not get Kafka: ${said === '' ? (error as Error).message : said}`, { cause: error });
  }
  return folder;
}
