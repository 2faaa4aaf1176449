/**
 * How the script for pages is built: everything in one minified file, `dist/sluice.js`, which the server serves as
 * `/ingest/sluice.js` (src/api/routes/static-files.ts). The package for npm is built by `tsc`, file by file.
 */

import { defineConfig } from 'vite';

/**
 * Names that only these sources use, and of some length: the script is smaller with short ones. Names that programs,
 * browsers or the server know must not be here.
 */
const INTERNAL =
  /^(beacon|bytes|counts|current|discard|emit|endpoint|exclusively|finish|forget|forgetAll|hold|idempotencyKey|isAllowed|isClosed|isTaken|keep|keepaliveBytesMax|leave|limits|ownId|person|queue|record|reject|release|remember|retryAfterMs|retryNow|sequence|text|takeOver|takeOverDropped|until)$/;

export default defineConfig({
  build: {
    rolldownOptions: { output: { minify: { mangle: true, compress: true, mangleProps: { include: INTERNAL } } } },
    outDir: 'dist',
    // What `tsc` wrote is there too.
    emptyOutDir: false,
    target: 'es2022',
    lib: { entry: 'src/script.ts', formats: ['iife'], name: 'sluiceScript', fileName: () => 'sluice.js' },
  },
});
