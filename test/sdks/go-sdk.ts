/**
 * Segment's SDK for Go, as the other SDKs. Not part of `npm test`: a machine that has no Go gets 80 MB of it and compiles
 * its HTTP library, which takes 40 seconds of a processor. `npm run test:go-sdk` runs it.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { useServer } from '../edge/fixture.ts';
import { removeFolder, temporaryFolder } from '../server.ts';
import { ensureTools } from '../tools.ts';
import { fileOf, goCommand } from './clients.ts';
import { testDeliveryOf } from './delivery.ts';
import { isStored, runSnippet, snippetWith } from './guide.ts';
import { whyNot } from './registries.ts';

await ensureTools(['go'], (line) => console.log(line));

testDeliveryOf([{ name: 'go', tools: ['go'], command: (folder) => goCommand(fileOf('go/main.go'), folder) }]);

suite('The guide for Segment’s SDKs', () => {
  const server = useServer();

  test('shows how to use Segment’s SDK for Go', { skip: whyNot('go') }, async (context) => {
    const folder = temporaryFolder();
    context.after(() => removeFolder(folder));
    const file = join(folder, 'snippet.go');
    writeFileSync(file, snippetWith('go', 'analytics-go'));
    await runSnippet(server(), await goCommand(file, join(folder, 'module')));
    await isStored(server(), 'Order Packed');
  });
});
