/**
 * The thread that validates large bodies, one after another. The bytes are transferred in and back, without a copy.
 */

import { parentPort } from 'node:worker_threads';
import { type ValidatorReply, validateBody } from './validate-body.ts';

parentPort?.on('message', (body: Uint8Array<ArrayBuffer>) => {
  const reply: ValidatorReply = { validation: validateBody(body), body };
  parentPort?.postMessage(reply, [body.buffer]);
});
