/**
 * A history by hand, for what chance rarely brings together: people are merged, unmerged, named together again, erased,
 * and come back, late and again.
 */

import { DAY_MS, HOUR_MS } from '../../src/model.ts';
import { BAD_USERS, type RequestDraft, type Step } from './generated-history.ts';

const said = (own: object, offsetMs = 0, more = ''): RequestDraft => ({
  tenant: 0,
  offsetMs,
  keyKind: 'secret',
  keyId: 'key_test',
  idempotencyKey: null,
  users: [
    `{"identifiers":${JSON.stringify(own)},"user_properties":{"plan":"a"},"events":[{"event_name":"order"${more}}]}`,
  ],
  cut: 'whole',
});
const BOTH = { user_id: 'ada', anon_id: 'device-0' };

export const UNDOING: readonly Step[] = [
  {
    again: false,
    requests: [
      said({ user_id: 'ada' }, 0, ',"revenue":0.1,"$event_id":"e1"'),
      said({ anon_id: 'device-0' }, 0, ',"revenue":0.2'),
      { ...said(BOTH, 1, ',"revenue":0.3'), users: [...said(BOTH).users, ...BAD_USERS.slice(3, 5)] },
      ...[{ user_id: 'bob' }, { anon_id: 'device-1' }, { user_id: 'bob', anon_id: 'device-1' }].map((own) => said(own)),
      ...[{ email: 'c@a.org' }, { anon_id: 'd2' }, { email: 'c@a.org', anon_id: 'd2' }].map((own) => said(own)),
    ],
    // Of bob, the second of those who were merged.
    act: { kind: 'unmerge', tenant: 0, pick: 1, atMs: 0 },
  },
  {
    again: true,
    requests: [said(BOTH), said({ ...BOTH, email: 'b@example.com' })],
    act: { kind: 'unmerge', tenant: 0, pick: 2, atMs: 0 },
  },
  {
    again: true,
    requests: [said({ user_id: 'ada' }, 0, ',"$event_id":"e1"')],
    act: { kind: 'erase', tenant: 0, pick: 0, atMs: HOUR_MS },
  },
  {
    again: true,
    requests: [said({ user_id: 'ada' }, 0, ',"$event_id":"e1"'), said({ anon_id: 'device-0' }), said(BOTH)],
    act: { kind: 'erase', tenant: 0, pick: 0, atMs: HOUR_MS },
  },
  {
    again: true,
    requests: [
      said(BOTH, DAY_MS, ',"$event_id":"e1"'),
      said({ anon_id: 'device-0' }, DAY_MS),
      // The same refusal again, once of a later and once of an earlier time.
      said({ user_id: 'bob', anon_id: 'device-1' }, DAY_MS),
    ],
    act: null,
  },
  { again: false, requests: [said({ user_id: 'bob', anon_id: 'device-1' })], act: null },
];
