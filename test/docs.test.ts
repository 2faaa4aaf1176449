/** The documents name only what exists: files and headings that they link to, source files and tests, decisions. */

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DOCUMENTS = globSync(['*.md', 'docs/**/*.md', 'bench/*.md', 'examples/**/*.md', '.github/**/*.md'], {
  cwd: ROOT,
});
const ARCHITECTURE = 'docs/ARCHITECTURE.md';

function read(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

/** As GitHub makes them. */
function anchorsOf(file: string): Set<string> {
  const headings = read(file).matchAll(/^#+ (.+)$/gm);
  return new Set(
    Array.from(headings, ([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

function brokenLinks(file: string): string[] {
  return Array.from(read(file).matchAll(/\]\(([^)\s]+)\)/g), ([, target = '']) => target).filter((target) => {
    if (/^[a-z]+:/.test(target)) return false;
    const [path = '', anchor] = target.split('#');
    const place = path === '' ? file : relative(ROOT, resolve(ROOT, dirname(file), path));
    if (!existsSync(join(ROOT, place))) return true;
    return anchor !== undefined && place.endsWith('.md') && !anchorsOf(place).has(anchor);
  });
}

/** Words with a file ending or a slash at the end; paths may begin at the root or at `src/`. */
function pathsIn(text: string): string[] {
  const names = text.matchAll(/(?<![\w./-])(?:[\w-]+\/)*(?:[\w-]+\.(?:ts|md|yaml)\b|[\w-]+\/(?=[`\s]))/g);
  return [...new Set(Array.from(names, ([name]) => name))];
}

/** Words that readers had to read twice, with the standard words beside them. */
const ODD_WORDS = new RegExp(
  [
    'whoever|nobody|somebody|anybody', // clients, users, operators
    'told|come upon|comes upon|heeds?', // set or reported, find, use
    'anew|for ever|seldom', // again, forever, rarely
    'mend(?:ed|s)?|set aside|the books', // fix, failed records, ledger
    'crowd|wishes|sightings|patience', // population, options, key usage, timeout
    'FROM (?:moves|apart)',
  ]
    .map((words) => `\\b(?:${words})\\b`)
    .join('|'),
  'gi',
);

function oddWordsIn(text: string): string[] {
  return Array.from(text.matchAll(ODD_WORDS), ([word]) => word);
}

/** Comments on lines of their own, and titles of tests, one per line. */
function titlesAndComments(source: string): string {
  const found = source.matchAll(/^\s*(?:\/?\*\*?|\/\/) .*|\b(?:test|suite)\(\s*(['"`]).*\1/gm);
  return Array.from(found, ([text]) => text).join('\n');
}

suite('The documents', () => {
  test('have links that lead somewhere', () => {
    assert.ok(DOCUMENTS.length > 20);
    const broken = DOCUMENTS.flatMap((file) => brokenLinks(file).map((target) => `${file}: ${target}`));
    assert.deepEqual(broken, []);
  });

  test('describe an architecture of files and folders that exist, by paths below src', () => {
    // Links are checked above; the data folder is made by a server.
    const text = read(ARCHITECTURE).replaceAll(/\[[^\]]*\]\([^)]+\)/g, '');
    const paths = pathsIn(text).filter((path) => !path.startsWith('data/'));
    assert.ok(paths.length > 40);
    const missing = paths.filter((path) => !existsSync(join(ROOT, path)) && !existsSync(join(ROOT, 'src', path)));
    assert.deepEqual(missing, []);
  });

  test('name source files and tests that exist, by their path or its end', () => {
    const files = globSync(['{src,test,bench,dashboard,sdk}/**/*.{ts,tsx}'], {
      cwd: ROOT,
      exclude: ['**/node_modules'],
    });
    const ends = (name: string): boolean => files.some((file) => `/${file}`.endsWith(`/${name}`));
    for (const document of DOCUMENTS) {
      const names = read(document).matchAll(/(?<![\w./-])(?:[\w-]+\/)*[\w-]+\.tsx?\b/g);
      for (const [name] of names) assert.ok(ends(name), `${document} names ${name}`);
    }
  });

  test('quote, in the tables for operators, messages that the program prints', () => {
    const sources = globSync('src/**/*.ts', { cwd: ROOT }).map(read).join('\n');
    const printed = sources.replaceAll(/['`]\s*\+\s*['`]/g, '').replaceAll(/\s+/g, ' ');
    const cells = read('docs/operating.md').matchAll(/^\|([^|]*)\|/gm);
    const quotes = Array.from(cells, ([, cell = '']) =>
      Array.from(cell.matchAll(/"([^"]+)"/g), ([, quote = '']) => quote),
    );
    // What a message fills in, such as the name of a file, is not in the sources.
    const fragments = quotes.flat().flatMap((quote) => quote.split(/…|[\w-]+\.(?:db|json)|log-ends|log\//));
    const texts = fragments.map((fragment) => fragment.trim()).filter((fragment) => fragment.length > 3);
    assert.ok(texts.length > 30);
    assert.deepEqual(
      texts.filter((text) => !printed.includes(text)),
      [],
    );
  });

  test('use standard words, as do source code, test titles and comments', () => {
    const texts = [
      ...DOCUMENTS.map((file) => [file, read(file)] as const),
      ...globSync(['{src,sdk/src,dashboard/src}/**/*.{ts,tsx}', 'examples/**/*.{html,js}'], { cwd: ROOT }).map(
        (file) => [file, read(file)] as const,
      ),
      // Test data may contain any word.
      ...globSync(['{test,bench}/**/*.ts'], { cwd: ROOT }).map(
        (file) => [file, titlesAndComments(read(file))] as const,
      ),
    ];
    assert.deepEqual(
      texts.flatMap(([file, text]) => oddWordsIn(text).map((word) => `${file}: ${word}`)),
      [],
    );
    const bad = "// Whoever asks is told.\ntest('the books balance anew', () => {});\nconst crowd = 'nobody';";
    assert.deepEqual(oddWordsIn(titlesAndComments(bad)), ['Whoever', 'told', 'the books', 'anew']);
    assert.deepEqual(oddWordsIn('const crowd = `SELECT apart FROM moves`;'), ['crowd', 'FROM moves']);
  });

  test('number each decision once, and no source file names one that is gone', () => {
    const decisions = globSync('docs/decisions/[0-9]*.md', { cwd: ROOT });
    const numbers = decisions.map((file) => /(\d{3})-/.exec(file)?.[1]);
    assert.equal(new Set(numbers).size, numbers.length);
    const sources = globSync(['src/**/*.ts', 'test/**/*.ts', 'bench/*.ts', 'dashboard/src/**/*.{ts,tsx}'], {
      cwd: ROOT,
    });
    for (const file of sources) {
      for (const [name, number] of read(file).matchAll(/decisions?[/ ](\d{3})\b/g)) {
        assert.ok(numbers.includes(number), `${file} names ${name}`);
      }
    }
  });
});
