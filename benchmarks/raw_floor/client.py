"""The load client of the raw queue: `python -m benchmarks.raw_floor.client URL`.

Requests of one turn of the event loop share a pipeline; one subscription brings all answers.
"""

import asyncio
import secrets
import sys

import msgpack
import redis.asyncio
import uvloop

from batchfleet.wire.codec import MSGPACK, encode_body
from batchfleet.wire.inputs import encode_inputs

from ..load import serve_bursts
from ..payload import one_row
from .keys import CHANNEL_PREFIX, INGRESS

_PIPELINE_MAX = 256


class RawCaller:
    """Sends the one payload again and again, under new ids. Belongs to one event loop."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._channel = CHANNEL_PREFIX + secrets.token_hex(16)
        self._payload = encode_body(encode_inputs(one_row())[0], MSGPACK)
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._unsent: list[bytes] = []
        self._has_unsent = asyncio.Event()

    async def call(self) -> None:
        """Send one request and wait for its answer."""
        request_id = secrets.token_hex(16).encode()
        future = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        self._unsent.append(request_id)
        self._has_unsent.set()
        await future

    async def write(self) -> None:
        """Send what is asked for, for ever."""
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            while self._unsent:
                batch = self._unsent[:_PIPELINE_MAX]
                self._unsent = self._unsent[_PIPELINE_MAX:]
                pipeline = self._client.pipeline(transaction=False)
                for request_id in batch:
                    entry = {"id": request_id, "b": self._payload, "to": self._channel}
                    pipeline.xadd(INGRESS, entry)
                await pipeline.execute()

    async def read(self, subscription: redis.asyncio.client.PubSub) -> None:
        """Hand over what is answered, for ever."""
        async for message in subscription.listen():
            if message["type"] == "message":
                for raw in msgpack.unpackb(message["data"]):
                    answer = msgpack.unpackb(raw)
                    future = self._waiting.pop(answer["id"], None)
                    if future is not None and not future.done():
                        future.set_result(None)

    async def serve(self) -> None:
        """Run bursts until stdin closes."""
        subscription = self._client.pubsub()
        await subscription.subscribe(self._channel)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.write()), group.create_task(self.read(subscription))]
            await serve_bursts(self.call)
            for task in tasks:
                task.cancel()


async def main(redis_url: str) -> None:
    """Connect and serve."""
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        await RawCaller(client).serve()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
