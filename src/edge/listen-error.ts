/**
 * Why the server could not listen on a port, as a message that says what to do.
 */

import { OperatorError } from '../errors.ts';

export function listenError(error: NodeJS.ErrnoException, host: string, port: number): Error {
  if (error.code === 'EADDRINUSE') {
    return new OperatorError(
      `Port ${port} on ${host} is already in use. Stop the program that uses it, or choose another port with PORT or --port.`,
    );
  }
  if (error.code === 'EACCES')
    return new OperatorError(`This user may not listen on port ${port}. Choose one above 1023 with PORT or --port.`);
  if (error.code === 'ENOTFOUND' || error.code === 'EAI_AGAIN') {
    return new OperatorError(`The host name ${host} cannot be resolved. Choose another with HOST or --host.`);
  }
  if (error.code === 'EADDRNOTAVAIL')
    return new OperatorError(`This machine has no address ${host}. Choose another with HOST or --host.`);
  return error;
}
