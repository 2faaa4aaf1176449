/** A module that imports SDKs of npm as one script for a page, as the build of a web site makes it. */

import { join } from 'node:path';
// Comes with vite, which builds the dashboard.
import { rolldown } from 'rolldown';
import { npmPackages } from './registries.ts';

export async function browserBundle(text: string): Promise<string> {
  const folder = await npmPackages('segment-browser', [
    '@segment/analytics-next@1.84.3',
    '@rudderstack/analytics-js@3.34.1',
  ]);
  // Packages are looked for beside the module, which is no file.
  const entry = join(folder, 'entry.js');
  const bundle = await rolldown({
    input: entry,
    platform: 'browser',
    logLevel: 'silent',
    plugins: [
      { name: 'entry', resolveId: (id) => (id === entry ? id : null), load: (id) => (id === entry ? text : null) },
    ],
  });
  const { output } = await bundle.generate({ format: 'iife', codeSplitting: false });
  await bundle.close();
  return output[0].code;
}
