/**
 * How the script for pages is built: everything in one minified file, `dist/sluice.js`, which the server serves as
 * `/ingest/sluice.js` (src/api/routes/static-files.ts). The package for npm is built by `tsc`, file by file.
 */

import { defineConfig } from 'vite';

export default defineConfig({
  build: {
    outDir: 'dist',
    // What `tsc` wrote is there too.
    emptyOutDir: false,
    target: 'es2022',
    lib: { entry: 'src/script.ts', formats: ['iife'], name: 'sluiceScript', fileName: () => 'sluice.js' },
  },
});
