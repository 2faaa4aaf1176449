import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import * as fc from 'fast-check';
import { docsPage } from '../../src/api/docs-page.ts';
import { nodeProgram, scriptTag, segmentProgram } from '../../dashboard/src/snippets.ts';
import { openApiDocument } from './document.ts';
import { startApp } from './running-app.ts';

const DOCUMENT = await openApiDocument();
const PAGE = docsPage(DOCUMENT);
const VOID = new Set(['meta', 'link', 'path', 'input']);

function tagsOf(page: string): string[] {
  return page.match(/<[^>]*>/g) ?? [];
}

function withoutTags(page: string): string {
  const text = page.slice(page.indexOf('</style>')).replace(/<[^>]*>/g, '');
  return text
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');
}

describe('the docs page', () => {
  test('is served as HTML with a policy that allows its own style sheet and nothing else', async (t) => {
    const { call } = await startApp(t);
    const { status, text, headers } = await call('GET', '/docs');
    assert.equal(status, 200);
    assert.equal(text, PAGE);
    assert.equal(headers['content-type'], 'text/html; charset=utf-8');
    const style = /<style>([^]*?)<\/style>/.exec(text)?.[1] ?? '';
    const hash = createHash('sha256').update(style).digest('base64');
    assert.equal(
      headers['content-security-policy'],
      `default-src 'none'; style-src 'sha256-${hash}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    );
  });

  test('has no script, no style that the policy would block, and nothing from another host', () => {
    const tags = tagsOf(PAGE);
    assert.ok(!PAGE.toLowerCase().includes('<script'));
    assert.equal(tags.filter((tag) => tag === '<style>').length, 1);
    for (const tag of tags) {
      assert.doesNotMatch(tag, /\s(?:on\w+|style|src|srcset|action)=/i);
      const target = /\shref="([^"]*)"/.exec(tag)?.[1];
      if (target !== undefined) assert.match(target, /^(?:#[\w-]+|openapi\.json|data:image\/svg\+xml,)/);
    }
    assert.doesNotMatch(PAGE, /@import|url\(/);
  });

  test('closes every tag that it opens', () => {
    const open: string[] = [];
    for (const tag of tagsOf(PAGE.replace(/<style>[^]*?<\/style>/, '')).slice(1)) {
      const name = /^<\/?([a-z0-9]+)/.exec(tag)?.[1] ?? '';
      if (VOID.has(name)) continue;
      if (tag.startsWith('</')) assert.equal(open.pop(), name);
      else open.push(name);
    }
    assert.deepEqual(open, []);
  });

  test('has the snippets that the dashboard shows to newcomers, with its own address and placeholders for keys', () => {
    const text = withoutTags(PAGE);
    const url = 'http://127.0.0.1:8080';
    for (const snippet of [scriptTag(url, 'pk_…'), nodeProgram(url, 'sk_dev_…'), segmentProgram(url, 'sk_dev_…')]) {
      assert.ok(text.includes(snippet), snippet);
    }
    // Each radio button has its panel, and each panel the rule that shows it.
    const ids = [...PAGE.matchAll(/<input type="radio" name="from" id="([\w-]+)"/g)].map(([, id = '']) => id);
    assert.equal(ids.length, 4);
    for (const id of ids) {
      assert.ok(PAGE.includes(`<label for="${id}">`) && PAGE.includes(`<div class="panel ${id}">`), id);
      assert.ok(PAGE.includes(`#${id}:checked ~ .${id}`), id);
    }
  });

  test('leads somewhere with every link in it, and gives no id twice', () => {
    const ids = [...PAGE.matchAll(/\sid="([^"]*)"/g)].map(([, id]) => id);
    assert.equal(new Set(ids).size, ids.length);
    const targets = [...PAGE.matchAll(/href="#([^"]*)"/g)].map(([, id]) => id);
    assert.ok(targets.length > 10);
    for (const target of targets) assert.ok(ids.includes(target), `#${target}`);
  });

  test('shows every operation, field, rule, error and limit of the OpenAPI document', () => {
    const text = withoutTags(PAGE);
    const plain = (words: string) => words.replaceAll('`', '');
    for (const path of Object.keys(DOCUMENT.paths)) assert.ok(text.includes(path), path);
    for (const [name, schema] of Object.entries(DOCUMENT.components.schemas)) {
      // Errors that no operation gives: a 405 is for a method that is not there.
      if (name === 'MethodNotAllowed') continue;
      for (const field of Object.keys(schema.properties ?? {})) {
        assert.ok(PAGE.includes(`<code>${field}</code></td>`), field);
      }
    }
    for (const item of Object.values(DOCUMENT.paths)) {
      for (const { operationId, summary, parameters = [] } of Object.values(item)) {
        assert.ok(PAGE.includes(`id="${operationId}"`) && text.includes(summary), operationId);
        const [, section = ''] = PAGE.split(`id="${operationId}"`);
        for (const { name } of parameters) assert.ok(section.includes(`<code>${name}</code></td>`), name);
      }
    }
    for (const { rule, message } of DOCUMENT['x-user-rules']) {
      assert.ok(text.includes(plain(rule)), rule);
      assert.ok(text.includes(message), message);
    }
    for (const { error, when } of DOCUMENT['x-errors']) {
      assert.ok(text.includes(error), error);
      assert.ok(text.includes(plain(when)), when);
    }
    for (const { what, limit } of DOCUMENT['x-limits'])
      assert.ok(text.includes(plain(what)) && text.includes(limit), what);
  });

  test('has a curl line whose body is the JSON that it shows', () => {
    const body = /-d '(.*)'/.exec(withoutTags(PAGE))?.[1] ?? '';
    assert.deepEqual(JSON.parse(body), {
      users: [{ identifiers: { user_id: 'u-1042' }, events: [{ event_name: 'signed_up' }] }],
    });
  });

  test('names the address of the server where it is known', async () => {
    const page = docsPage(await openApiDocument({ serverUrl: () => 'https://events.example.com' }));
    assert.ok(page.includes('export SLUICE_URL=https://events.example.com\n'));
    assert.ok(!page.includes('127.0.0.1'));
  });

  test('whatever version and address are called, they are text in the page and never markup', () => {
    const nasty = fc.oneof(
      fc.string(),
      fc.constantFrom(
        '<script>alert(1)</script>',
        '"><img src=x onerror=alert(1)>',
        '</style>',
        '`<b>`',
        '**<i>**',
        '&lt;',
        "'",
      ),
    );
    const called = (version: string, url: string) => ({
      ...DOCUMENT,
      info: { ...DOCUMENT.info, version },
      servers: [{ url, description: '' }],
    });
    const plainTags = tagsOf(docsPage(called('x', 'x')));
    fc.assert(
      fc.property(nasty, nasty, (version, serverUrl) => {
        const page = docsPage(called(version, serverUrl));
        assert.deepEqual(tagsOf(page), plainTags);
        assert.ok(withoutTags(page).includes(version));
      }),
    );
  });

  test('descriptions may hold markup of their own without it becoming part of the page', () => {
    const description = 'A <b>`<u>`</b> & **<i>** word\n\n- one <x>\n- two';
    const page = docsPage({ ...DOCUMENT, tags: [], paths: { '/x': { get: operation(description) } } });
    for (const tag of ['<b>', '<u>', '<i>', '<x>']) assert.ok(!page.slice(page.indexOf('</style>')).includes(tag), tag);
    assert.ok(page.includes('<strong>&lt;i&gt;</strong>'));
    assert.ok(page.includes('<ul><li>one &lt;x&gt;</li><li>two</li></ul>'));
  });
});

function operation(description: string) {
  return { operationId: 'x', tags: ['Events'], summary: 'X', description, security: [], responses: {} };
}
