/**
 * Serves the pages of this folder on the loopback interface, with the address of the Sluice server (SLUICE_URL) and a
 * publishable key (SHOP_KEY) filled in. A shop of your own has both in its template and needs no such program.
 */

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const { SLUICE_URL = 'http://127.0.0.1:8080', SHOP_KEY = '', PORT = '3000' } = process.env;
if (!SHOP_KEY.startsWith('pk_')) {
  console.error('SHOP_KEY must be a publishable key, pk_…; README.md shows how to create one.');
  process.exit(1);
}

const TYPES = { html: 'text/html', css: 'text/css', js: 'text/javascript' };
const FILES = { '/': 'index.html', '/shop.css': 'shop.css', '/shop.js': 'shop.js' };

const server = createServer((request, response) => {
  const file = FILES[new URL(request.url, 'http://shop').pathname];
  if (file === undefined) {
    response.writeHead(404).end();
    return;
  }
  const text = readFileSync(new URL(file, import.meta.url), 'utf8');
  response.setHeader('content-type', `${TYPES[file.split('.')[1]]}; charset=utf-8`);
  response.end(text.replace('SLUICE_URL', SLUICE_URL).replace('SLUICE_KEY', SHOP_KEY));
});

server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`The shop is open: http://127.0.0.1:${server.address().port}`);
});
