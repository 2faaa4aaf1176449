/**
 * How the page is built: into `dashboard/dist`, which the server reads (src/api/routes/static-files.ts). Nothing is inlined,
 * because the page is served with a Content-Security-Policy that allows no inline script, no inline style and no data:
 * addresses. While developing, `npm run dev --workspace dashboard` serves the sources and passes the API on.
 */

import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

const API = 'http://127.0.0.1:8080';
const API_PATHS =
  '^/(session|invitations|members|keys|live|receipts|health|profiles|events|traces|rejections|ledger|audit|ingest|docs|openapi.json)\\b';

export default defineConfig({
  base: '/dashboard/',
  plugins: [react()],
  build: {
    outDir: 'dist',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // What many views share in one file: a file of its own for each part costs more than it saves.
    rolldownOptions: {
      output: { codeSplitting: { groups: [{ name: 'shared', test: /dashboard\/src\/(ui|styles|[^/]+$)/ }] } },
    },
  },
  server: { proxy: { [API_PATHS]: API } },
});
