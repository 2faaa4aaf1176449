/**
 * The one-time token of a welcome link. It stands in the fragment of the address, which no server and no log sees, and
 * is taken out of the address bar as soon as the page starts, so that it is in no history and on no screenshot. It is
 * kept in memory alone: after a reload the link has to be opened again.
 */

const WELCOME_PATH = '/dashboard/welcome';

let token = '';

/** The token of the link that was opened last; '' when there was none. */
export function takeWelcomeToken(): string {
  if (location.pathname === WELCOME_PATH && location.hash.length > 1) {
    token = location.hash.slice(1);
    history.replaceState(null, '', WELCOME_PATH);
  }
  return token;
}

export function forgetWelcomeToken(): void {
  token = '';
}
