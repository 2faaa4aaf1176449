/**
 * A stored plan that this version cannot read. Plans are checked before they are stored, so it was stored by a newer
 * version, or is damaged. The rule for whatever checks events: as if there were no plan, and an error in the log; sluice
 * doctor reports it. Whatever masks personal data fails instead, since it does not know what to mask.
 */

export class UnusablePlanError extends Error {}

/** For the log. */
export const UNUSABLE_PLAN =
  'a stored tracking plan cannot be read, so nothing is checked against it: push it again (see sluice doctor)';
