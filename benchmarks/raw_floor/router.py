"""The hop of the raw queue: `python -m benchmarks.raw_floor.router URL`, until it is ended.

One script a request, all of a read in one pipeline: join a repeated id, bound the queue, move the
entry on, remember the request, acknowledge.
"""

import os
import sys

import redis

from .keys import INGRESS, OPEN_PREFIX, QUEUE, ROUTER_GROUP

_COUNT = 256
_BLOCK_MS = 3000
_QUEUE_MAX = 100_000

# KEYS 1 queue   2 open request   3 ingress
# ARGV 1 most entries   2 id   3 body   4 channel   5 entry
_ADMIT = """
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return -1 end
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[2], 'b', ARGV[3], 'to', ARGV[4])
redis.call('HSET', KEYS[2], 's', 'q', 'e', entry, 'k', KEYS[1])
redis.call('PEXPIRE', KEYS[2], 60000)
redis.call('XACK', KEYS[3], 'router', ARGV[5])
redis.call('XDEL', KEYS[3], ARGV[5])
return 1
"""


def main(redis_url: str) -> None:
    """Move requests on, for ever."""
    client = redis.Redis.from_url(redis_url)
    client.xgroup_create(INGRESS, ROUTER_GROUP, id="0", mkstream=True)
    admit = client.script_load(_ADMIT)
    name = f"router-{os.getpid()}"
    print('{"ready": true}', flush=True)
    while True:
        read = client.xreadgroup(ROUTER_GROUP, name, {INGRESS: ">"}, count=_COUNT, block=_BLOCK_MS)
        if not read:
            continue
        pipeline = client.pipeline(transaction=False)
        for entry_id, entry in read[0][1]:
            request_id = entry[b"id"]
            keys = (QUEUE, OPEN_PREFIX + request_id, INGRESS)
            pipeline.evalsha(
                admit, 3, *keys, _QUEUE_MAX, request_id, entry[b"b"], entry[b"to"], entry_id
            )
        pipeline.execute()


if __name__ == "__main__":
    main(sys.argv[1])
