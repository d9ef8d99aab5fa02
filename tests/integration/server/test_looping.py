"""The asyncio executor and subscription against a real server."""

import asyncio

import pytest
from support.server import url_as
from support.stub_fleet import deploy_model

from batchfleet.broker import fleet, requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.errors import DeniedError, RefusedError, UnreachableError
from batchfleet.broker.looping import LoopingExecutor, Subscription
from batchfleet.broker.packing import pack

PATIENCE_S = 20.0


@pytest.fixture(params=["url", "socket_url"])
def url(request, redis_server):
    return getattr(redis_server, request.param)


@pytest.fixture
async def executor(url):
    executor = LoopingExecutor(url, "test-looping")
    yield executor
    await executor.close()


def kill(server, name):
    for entry in server.client_list():
        if entry["name"] == name:
            server.client_kill_filter(_id=entry["id"])


def echo(text):
    return plain(as_is, "ECHO", text)


async def test_answers_reach_their_own_callers(executor):
    texts = [str(n) for n in range(3000)]
    answers = await asyncio.gather(*[executor.run(echo(text)) for text in texts])
    assert answers == [text.encode() for text in texts]


async def test_more_than_the_transport_takes_at_once(executor, namespace):
    big = b"x" * 1_000_000
    keys = [f"{namespace}:{n}" for n in range(40)]
    await asyncio.gather(*[executor.run(plain(as_is, "SET", key, big)) for key in keys])
    lengths = await executor.run_each([plain(int, "STRLEN", key) for key in keys])
    assert lengths == [len(big)] * 40


async def test_unknown_script_is_loaded(executor, server, redis_url, namespace):
    keys = deploy_model(redis_url, namespace, "m")
    server.script_flush()
    overdue = [executor.run(requests.overdue(keys, 10)) for _ in range(5)]
    assert await asyncio.gather(*overdue) == [[]] * 5


async def test_a_refusal_is_its_callers_alone(executor, server, namespace):
    server.set(f"{namespace}:text", "x")
    bad, good = plain(as_is, "LPUSH", f"{namespace}:text", "y"), echo("fine")
    refused, answer = await executor.run_each([bad, good])
    assert (refused.code, answer) == ("WRONGTYPE", b"fine")
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        await executor.run(bad)


async def test_what_cannot_be_packed_harms_nobody(executor):
    with pytest.raises(TypeError):
        await executor.run(plain(as_is, "ECHO", None))
    assert await executor.run(echo("fine")) == b"fine"


async def test_broken_connection_fails_what_is_in_flight_and_is_recreated(executor, server):
    await executor.run(fleet.ping())
    blocked = asyncio.create_task(executor.run(plain(as_is, "BLPOP", "nothing-there", 0)))
    behind = asyncio.create_task(executor.run(echo("behind")))
    async with asyncio.timeout(PATIENCE_S):
        while "b" not in await asyncio.to_thread(flags_of, server, "test-looping"):
            pass
    kill(server, "test-looping")
    for task in (blocked, behind):
        with pytest.raises(UnreachableError):
            await task
    assert await executor.run(echo("again")) == b"again"


def flags_of(server, name):
    return next(entry["flags"] for entry in server.client_list() if entry["name"] == name)


async def test_silent_server_counts_as_broken(url):
    executor = LoopingExecutor(url, "test-silent", timeout_s=0.05)
    try:
        await executor.run(fleet.ping())
        with pytest.raises(UnreachableError, match="said nothing"):
            await executor.run(plain(as_is, "BLPOP", "nothing-there", 0))
        assert await executor.run(echo("again")) == b"again"
    finally:
        await executor.close()


async def test_cancelled_caller_disturbs_nobody(executor):
    first = asyncio.create_task(executor.run(echo("first")))
    unsent = asyncio.create_task(executor.run(echo("unsent")))
    last = asyncio.create_task(executor.run(echo("last")))
    unsent.cancel()
    assert (await first, await last) == (b"first", b"last")
    assert unsent.cancelled()


async def test_posted_command_tells_how_it_went(executor, server):
    await executor.run(fleet.ping())
    heard = asyncio.Queue()

    def post(command):
        future = asyncio.get_running_loop().create_future()
        executor.post(pack(command), future, lambda _, answer: heard.put_nowait(answer))
        return future

    post(("ECHO", "lone"))
    assert not executor._outbox, "one caller alone waits for nobody"
    unwanted = post(("ECHO", "unwanted"))
    unwanted.cancel()
    post(("ECHO", "last"))
    post(("BLPOP", "nothing-there", 0))
    async with asyncio.timeout(PATIENCE_S):
        assert [await heard.get(), await heard.get()] == [b"lone", b"last"]
        while "b" not in await asyncio.to_thread(flags_of, server, "test-looping"):
            pass
        kill(server, "test-looping")
        assert isinstance(await heard.get(), UnreachableError)
    assert heard.empty()


async def test_closing_fails_what_waits_and_what_comes(url):
    executor = LoopingExecutor(url, "test-close")
    await executor.run(fleet.ping())
    blocked = asyncio.create_task(executor.run(plain(as_is, "BLPOP", "nothing-there", 0)))
    unconnected = LoopingExecutor(url, "test-close-2")
    early = asyncio.create_task(unconnected.run(fleet.ping()))
    await executor.run_each([])
    await asyncio.gather(executor.close(), unconnected.close())
    await executor.close()
    for work in (blocked, early, executor.run(fleet.ping())):
        with pytest.raises(UnreachableError):
            await work


async def test_wrong_password_is_denied(redis_server):
    url = url_as(redis_server.url, "nobody", "wrong")
    executor = LoopingExecutor(url, "test-denied")
    with pytest.raises(DeniedError):
        await executor.run(fleet.ping())
    assert not executor.was_reachable
    await executor.close()


class Inbox:
    """What a subscription hears."""

    def __init__(self, url):
        self.messages = asyncio.Queue()
        self.subscription = Subscription(
            url, "test-subscription", lambda *message: self.messages.put_nowait(message)
        )

    async def next(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self.messages.get()


async def test_subscription_hears_its_channels_and_confirms_them_again(url, server, namespace):
    one, two = f"{namespace}:one", f"{namespace}:two"
    inbox = Inbox(url)
    inbox.subscription.add(one)
    running = asyncio.create_task(inbox.subscription.run())
    assert await inbox.next() == (one, None)
    inbox.subscription.add(two)
    assert await inbox.next() == (two, None)
    inbox.subscription.remove(one)
    server.execute_command("SPUBLISH", two, b"hello")
    assert await inbox.next() == (two, b"hello")
    assert server.execute_command("SPUBLISH", one, b"lost") == 0
    kill(server, "test-subscription")
    with pytest.raises(UnreachableError):
        await running
    running = asyncio.create_task(inbox.subscription.run())
    assert await inbox.next() == (two, None)
    await inbox.subscription.close()
    with pytest.raises(UnreachableError):
        await running
