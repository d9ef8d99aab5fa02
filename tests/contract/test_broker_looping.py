"""The asyncio side of every broker: many callers on one executor, and channels."""

import asyncio

import msgpack
import pytest
from support.broker_wire import ANSWER, REFUSAL, TENANT

from batchfleet.broker import fleet, requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.errors import RefusedError, UnreachableError
from batchfleet.broker.packing import pack
from batchfleet.wire import limits
from batchfleet.wire.request import Request

PATIENCE_S = 20.0


@pytest.fixture
async def executor(broker):
    executor = broker.connect_looping("test-looping")
    yield executor
    await executor.close()


def blocked(wire, timeout_s=0):
    return plain(as_is, "BLPOP", wire.bell, timeout_s)


async def test_answers_reach_their_own_callers(executor):
    texts = [str(number) for number in range(300)]
    answers = await asyncio.gather(*[executor.run(plain(as_is, "ECHO", text)) for text in texts])
    assert answers == [text.encode() for text in texts]
    assert executor.was_reachable


async def test_scripts_and_plain_commands_run(executor, wire):
    assert await executor.run(requests.overdue(wire.keys, 10)) == []
    stable, count = await executor.run_each(
        [fleet.deployment(wire.keys), requests.open_requests(wire.keys)]
    )
    assert (stable.stable, count) == ("1", 0)


async def test_an_error_is_its_callers_alone(executor, wire):
    wire.open("a")
    bad, good = plain(as_is, "RPUSH", wire.keys.due, "x"), requests.open_requests(wire.keys)
    refused, count = await executor.run_each([bad, good])
    assert (refused.code, count) == ("WRONGTYPE", 1)
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        await executor.run(bad)
    with pytest.raises(TypeError):
        await executor.run(plain(as_is, "ECHO", None))


async def test_a_wait_ends_when_served_and_when_its_time_is_over(broker, executor, wire):
    assert await executor.run(blocked(wire, 0.02)) is None
    waiting = asyncio.create_task(executor.run(blocked(wire, PATIENCE_S)))
    other = broker.connect_looping("test-other")
    await other.run(plain(as_is, "RPUSH", wire.bell, "1"))
    assert await waiting == [wire.bell.encode(), b"1"]
    await other.close()


async def test_a_caller_that_left_disturbs_nobody(executor):
    first, left, last = (
        asyncio.create_task(executor.run(plain(as_is, "ECHO", text)))
        for text in ("first", "left", "last")
    )
    left.cancel()
    assert (await first, await last) == (b"first", b"last")
    assert left.cancelled()


async def test_closing_fails_what_waits_and_what_comes(broker, wire):
    executor = broker.connect_looping("test-close")
    await executor.run(fleet.ping())
    waiting = asyncio.create_task(executor.run(blocked(wire)))
    await executor.run_each([])
    await executor.close()
    await executor.close()
    for work in (waiting, executor.run(fleet.ping())):
        with pytest.raises(UnreachableError):
            await work


class Inbox:
    """What a subscription hears."""

    def __init__(self, broker):
        self.messages = asyncio.Queue()
        self.subscription = broker.subscribe(
            "test-subscription", lambda *message: self.messages.put_nowait(message)
        )
        self.running = None

    def run(self):
        self.running = asyncio.create_task(self.subscription.run())

    async def next(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self.messages.get()

    async def close(self):
        await self.subscription.close()
        await self.subscription.close()
        with pytest.raises(UnreachableError):
            await self.running


async def test_channels_are_confirmed_when_added_and_after_each_start(broker, wire):
    one, two = wire.keys.channel(TENANT, "one"), wire.keys.channel(TENANT, "two")
    inbox = Inbox(broker)
    inbox.subscription.add(one)
    inbox.run()
    assert await inbox.next() == (one, None)
    inbox.subscription.add(two)
    inbox.subscription.add(two)
    assert await inbox.next() == (two, None)
    inbox.subscription.remove(one)
    inbox.subscription.remove(one)
    wire.ask("SPUBLISH", two, b"hello")
    assert await inbox.next() == (two, b"hello")
    wire.ask("SPUBLISH", one, b"lost")
    await inbox.close()
    inbox.run()
    assert await inbox.next() == (two, None)
    assert inbox.messages.empty()
    await inbox.close()


async def test_small_replies_are_told_whole_and_large_ones_by_id(broker, wire):
    """All of one call and channel come in one message, refusals each in their own."""
    channel = wire.keys.channel(TENANT, "same-prefix-a")
    assert channel == wire.keys.channel(TENANT, "same-prefix-b")
    inbox = Inbox(broker)
    inbox.subscription.add(channel)
    inbox.run()
    assert await inbox.next() == (channel, None)
    wire.open("same-prefix-a", "same-prefix-b")
    wire.join()
    small, large = wire.take()
    body = b"x" * (limits.NOTIFY_BYTES_MAX + 1)
    wire.finish(
        "w1",
        wire.end(small.id, ANSWER, small.stream, small.entry_id),
        wire.end(large.id, body, large.stream, large.entry_id),
    )
    _, payload = await inbox.next()
    assert msgpack.unpackb(payload, raw=True) == [ANSWER, b"same-prefix-b"]
    wire.send("same-prefix-c", refusal=REFUSAL)
    _, payload = await inbox.next()
    assert msgpack.unpackb(payload, raw=True) == [REFUSAL]
    await inbox.close()


async def test_packed_commands_are_run_and_posted(broker, executor, wire):
    keys = wire.keys
    packed = pack(requests.submit(keys, TENANT, Request(id="a", inputs=b"x")).parts)
    assert await executor.run_packed(packed) == wire.ask("XRANGE", wire.ingress, "-", "+")[0][0]
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        await executor.run_packed(pack(("RPUSH", wire.ingress, "x")))
    answers = asyncio.Queue()
    loop = asyncio.get_running_loop()
    one, other = loop.create_future(), loop.create_future()
    executor.post(packed, one, lambda *answer: answers.put_nowait(answer))
    executor.post(pack(("GET", wire.ingress)), other, lambda *answer: answers.put_nowait(answer))
    async with asyncio.timeout(PATIENCE_S):
        got = dict([await answers.get(), await answers.get()])
    assert got[one] == wire.ask("XRANGE", wire.ingress, "-", "+")[1][0]
    assert got[other].code == "WRONGTYPE"
    assert not one.done()
