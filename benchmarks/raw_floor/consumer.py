"""The worker of the raw queue: `python -m benchmarks.raw_floor.consumer URL`, until it is ended.

It decodes each body, computes nothing, and settles a whole read in one script: reply, ack, delete,
each only where the entry is still its own. Answers of one caller go out as one message.
"""

import os
import sys
from typing import Any

import msgpack
import redis

from .keys import OPEN_PREFIX, QUEUE, REPLY_PREFIX, WORKER_GROUP

_COUNT = 64
_BLOCK_MS = 3000
_REPLY_TTL_MS = 300_000

# KEYS 1 queue   then for each request: open request, reply
# ARGV 1 worker   2 TTL of replies ms   then for each request: entry, answer
_SETTLE = """
local settled = {}
for i = 1, (#KEYS - 1) / 2 do
  local entry = ARGV[3 + (i - 1) * 2]
  local pending = redis.call('XPENDING', KEYS[1], 'worker', entry, entry, 1)
  if pending[1] and pending[1][2] == ARGV[1] then
    redis.call('RPUSH', KEYS[2 * i + 1], ARGV[4 + (i - 1) * 2])
    redis.call('PEXPIRE', KEYS[2 * i + 1], ARGV[2])
    redis.call('XACK', KEYS[1], 'worker', entry)
    redis.call('XDEL', KEYS[1], entry)
    redis.call('DEL', KEYS[2 * i])
    settled[i] = 1
  else
    settled[i] = 0
  end
end
return settled
"""


def _answer(request_id: bytes, worker: str) -> bytes:
    receipt = {"q": 1.0, "r": 2.0, "b": 64, "w": worker}
    answer = {"id": request_id, "ok": 1, "y": [0.25, 0.75], "receipt": receipt}
    return bytes(msgpack.packb(answer))


def _settle(client: "redis.Redis", script: str, worker: str, entries: list[Any]) -> None:
    keys: list[bytes | str] = [QUEUE]
    arguments: list[Any] = [worker, _REPLY_TTL_MS]
    by_channel: dict[bytes, list[bytes]] = {}
    for entry_id, entry in entries:
        request_id = entry[b"id"]
        msgpack.unpackb(entry[b"b"])
        answer = _answer(request_id, worker)
        keys += [OPEN_PREFIX + request_id, REPLY_PREFIX + request_id]
        arguments += [entry_id, answer]
        by_channel.setdefault(entry[b"to"], []).append(answer)
    pipeline = client.pipeline(transaction=False)
    pipeline.evalsha(script, len(keys), *keys, *arguments)
    for channel, answers in by_channel.items():
        pipeline.publish(channel, msgpack.packb(answers))
    pipeline.execute()


def main(redis_url: str) -> None:
    """Answer requests, for ever."""
    client = redis.Redis.from_url(redis_url)
    client.xgroup_create(QUEUE, WORKER_GROUP, id="0", mkstream=True)
    script = client.script_load(_SETTLE)
    worker = f"worker-{os.getpid()}"
    print('{"ready": true}', flush=True)
    while True:
        read = client.xreadgroup(WORKER_GROUP, worker, {QUEUE: ">"}, count=_COUNT, block=_BLOCK_MS)
        if read:
            _settle(client, script, worker, read[0][1])


if __name__ == "__main__":
    main(sys.argv[1])
