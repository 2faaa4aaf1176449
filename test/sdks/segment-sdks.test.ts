/** The SDKs of Segment and RudderStack that run outside of browsers, without Go, whose compiler takes too long (`go-sdk.ts`). */

import { SDK_CLIENTS } from './clients.ts';
import { testDeliveryOf } from './delivery.ts';

testDeliveryOf(SDK_CLIENTS);
