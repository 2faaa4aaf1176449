/**
 * The thread that judges large bodies, one after another. The bytes come in and go back by transfer, without a copy.
 */

import { parentPort } from 'node:worker_threads';
import { type ValidatorReply, validateBody } from './validate-body.ts';

parentPort?.on('message', (body: Uint8Array<ArrayBuffer>) => {
  const reply: ValidatorReply = { verdict: validateBody(body), body };
  parentPort?.postMessage(reply, [body.buffer]);
});
