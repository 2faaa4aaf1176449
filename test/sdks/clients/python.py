"""Segment's Python SDK as a client of `clients.ts`."""

import json
import os
import sys
import time

import segment.analytics as analytics

failed = set()
analytics.write_key = os.environ["SLUICE_KEY"]
analytics.host = os.environ["SLUICE_URL"] + "/ingest"
analytics.upload_size = 20
analytics.upload_interval = 0.05
analytics.max_retries = 20
analytics.on_error = lambda error, batch: failed.update(message["properties"]["n"] for message in batch)

print("ready", flush=True)
sys.stdin.readline()
count = int(os.environ["SLUICE_COUNT"])
for n in range(count):
    analytics.track(user_id="user-%d" % (n % 50), event=os.environ["SLUICE_EVENT"], properties={"n": n})
    time.sleep(0.002)
analytics.shutdown()
print(json.dumps([n for n in range(count) if n not in failed]))
