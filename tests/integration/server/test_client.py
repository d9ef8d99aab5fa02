"""The asyncio client against a real server and a fleet of one thread."""

import asyncio
import gc
import json
import math

import numpy as np
import pytest
from support.fleet import until
from support.ports import free_port
from support.server import url_as
from support.stub_fleet import StubFleet, deploy_model, reached

from batchfleet.broker import requests
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.broker.embedded import EmbeddedServer, ServerOptions
from batchfleet.broker.errors import DeniedError, UnreachableError
from batchfleet.producer.async_client import AsyncClient
from batchfleet.producer.errors import ClientClosedError, WaitTimeoutError
from batchfleet.producer.waiter import CHANNELS_MAX
from batchfleet.producer.waits import AwaitedId, Wait
from batchfleet.wire.errors import CallerError, ErrorKind, FleetError, ModelError, ServerError
from batchfleet.wire.states import State

# Below the 5 s after which every reply key is read anyway.
SOONER_THAN_CHECK_S = 4.0
PATIENCE_S = 20.0


async def accepted(client, server, keys, count):
    """Wait until so many requests are open."""
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(server.zcard, keys.due) < count:
            pass


async def removed(server, key):
    """Wait until a reply that was handed over is removed: nothing more is on its way then."""
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(server.exists, key):
            pass


def connections(server, name):
    return [entry for entry in server.client_list() if entry["name"] == name]


async def test_answers_echo_in_every_form_of_input(client, stub):
    result = await client.infer("m", "hello", meta="mine")
    assert (result.text, result.meta, result.model, result.version) == ("hello", "mine", "m", "1")
    assert result.receipt["release"] == "idle"
    assert (await client.infer("m", ["a", "b"])).output == ["a", "b"]
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal((await client.infer("m", array)).output, array)
    mixed = await client.infer("m", {"x": array, "names": ["a", "b", "c"]})
    assert mixed.outputs["names"] == ["a", "b", "c"]
    assert mixed.usage["rows"] == 3
    with pytest.raises(ValueError, match="take one"):
        _ = mixed.output


async def test_reply_in_json(client, stub):
    array = np.array([[0.5, math.pi, math.inf]])
    result = await client.infer("m", array, accept="application/json")
    np.testing.assert_array_equal(result.output, array)
    assert (await client.infer("m", "é", accept="application/json")).text == "é"


async def test_reply_larger_than_a_notification(client, stub):
    big = np.random.default_rng(1).random((64, 1000))
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        np.testing.assert_array_equal((await client.infer("m", big)).output, big)


async def test_map_keeps_order_and_bounds_concurrency(client, stub, server, keys):
    stub.open.clear()
    read = []
    answers = client.map("m", (read.append(n) or str(n) for n in range(300)), concurrency=32)
    first = asyncio.create_task(anext(answers))
    await accepted(client, server, keys, 32)
    assert client.waiting == 32
    assert len(read) == 33
    stub.open.set()
    texts = [(await first).text] + [result.text async for result in answers]
    assert texts == [str(n) for n in range(300)]


async def test_map_raises_or_returns_errors(client, stub):
    inputs = ["a", 7, "b"]
    with pytest.raises(CallerError):
        _ = [result async for result in client.map("m", inputs)]
    answers = [item async for item in client.map("m", inputs, return_errors=True)]
    assert [getattr(answer, "name", None) for answer in answers] == [None, "bad_inputs", None]
    assert client.waiting == 0
    with pytest.raises(TypeError):
        await anext(client.map("m", inputs, id="same"))


async def test_life_of_a_request(client, keys, redis_url):
    handle = await client.submit("m", "hello")
    assert await client.status(handle) is State.SUBMITTED
    assert await client.status((handle.model, handle.id)) is State.UNKNOWN
    assert await client.poll(handle) is None
    fleet = StubFleet(redis_url, keys)
    fleet.open.clear()
    with fleet:
        await reached(client, handle, State.ACCEPTED)
        assert await client.poll(handle) is None
        fleet.open.set()
        await reached(client, handle, State.OK)
    result = await client.poll(handle)
    assert result.text == "hello"
    await client._remover.close()
    assert await client.status(handle) is State.OK
    with pytest.raises(CallerError) as caught:
        await client.poll(handle)
    assert caught.value.kind is ErrorKind.UNKNOWN_REQUEST
    with pytest.raises(CallerError) as caught:
        await client.result(handle)
    assert caught.value.kind is ErrorKind.UNKNOWN_REQUEST


async def test_refusal_is_raised_and_may_be_tried_again(client, stub, redis_url):
    refusal = {"code": 200, "name": "busy", "message": "full", "retry_after_ms": 50}
    reply = {"id": "ID", "tenant": "default", "status": "error", "error": refusal}
    stub.refusal = json.dumps(reply).encode()
    with pytest.raises(FleetError) as caught:
        await client.infer("m", "x", id="again", timeout_ms=1000)
    assert (caught.value.name, caught.value.retry_after_ms) == ("busy", 50)
    stub.refusal = b""
    assert (await client.infer("m", "x", id="again")).text == "x"


async def test_reply_stays_with_keep(redis_url, namespace, stub, server, keys):
    for keep, left in ((True, 1), (False, 0)):
        target = {"namespace": namespace, "tenant": "default", "keep": keep}
        async with AsyncClient(redis_url, **target) as client:
            result = await client.infer("m", "x")
        assert server.exists(keys.reply("default", result.id)) == left


async def test_same_id_at_once_runs_once(client, stub):
    stub.open.clear()
    calls = [asyncio.create_task(client.infer("m", "x", id="one")) for _ in range(100)]
    await reached(client, ("m", "one"), State.ACCEPTED)
    stub.open.set()
    answers = await asyncio.gather(*calls)
    assert {(answer.id, answer.text) for answer in answers} == {("one", "x")}
    assert stub.runs == {"one": 1}


async def test_same_id_later_joins_the_kept_reply(redis_url, namespace, stub):
    target = {"namespace": namespace, "tenant": "default", "keep": True}
    async with AsyncClient(redis_url, **target) as first:
        await first.infer("m", "x", id="two")
    async with AsyncClient(redis_url, **target) as second, asyncio.timeout(SOONER_THAN_CHECK_S):
        assert (await second.infer("m", "x", id="two")).text == "x"
    assert stub.runs == {"two": 1}


async def test_more_callers_ids_than_channels(client, stub, server, keys):
    stub.open.clear()
    count = CHANNELS_MAX + 10
    ids = [f"{number:08d}-mine" for number in range(count)]
    calls = [asyncio.create_task(client.infer("m", name, id=name)) for name in ids]
    await accepted(client, server, keys, count)
    assert len(server.execute_command("PUBSUB", "SHARDCHANNELS", keys.prefix + "*")) == CHANNELS_MAX
    stub.open.set()
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        assert [answer.text for answer in await asyncio.gather(*calls)] == ids
        # Idle channels make room for new ones.
        assert (await client.infer("m", "x", id="other-id")).text == "x"
    channel = keys.channel("default", "other-id")
    assert server.execute_command("PUBSUB", "SHARDNUMSUB", channel) == [channel.encode(), 1]


async def test_unknown_model_and_tenant(client, redis_url, namespace, keys):
    with pytest.raises(CallerError, match="batchfleet deploy nothing/VERSION") as caught:
        await client.infer("nothing", "x")
    assert caught.value.kind is ErrorKind.UNKNOWN_MODEL
    async with AsyncClient(redis_url, namespace=namespace, tenant="other") as stranger:
        with pytest.raises(CallerError, match="tenant other"):
            await stranger.submit("m", "x")
    assert client.waiting == 0


@pytest.mark.parametrize("bad", [{"model": "a{b}"}, {"id": "a:b"}, {"inputs": 7}])
async def test_what_cannot_be_sent_is_refused_here(client, bad):
    arguments = {"model": "m", "inputs": "x", **bad}
    with pytest.raises(CallerError):
        await client.infer(**arguments)
    assert client.waiting == 0


async def test_lost_subscription_loses_nothing(client, stub, server, keys):
    stub.open.clear()
    calls = [asyncio.create_task(client.infer("m", str(n))) for n in range(50)]
    await accepted(client, server, keys, 50)
    assert server.client_kill_filter(_type="pubsub") == 1
    stub.open.set()
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        texts = [result.text for result in await asyncio.gather(*calls)]
    assert texts == [str(n) for n in range(50)]


async def test_lost_connection_during_a_wait(client, stub, server, keys):
    stub.open.clear()
    call = asyncio.create_task(client.infer("m", "x"))
    await accepted(client, server, keys, 1)
    (own,) = connections(server, "batchfleet-client")
    server.client_kill_filter(_id=own["id"])
    stub.open.set()
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        assert (await call).text == "x"
        assert (await client.infer("m", "y")).text == "y"


@pytest.mark.parametrize("fields", [{"id": "resent"}, {}])
async def test_request_cut_off_in_flight_is_sent_again(client, stub, server, keys, fields):
    await client.infer("m", "warm", id="warm")
    await removed(server, keys.reply("default", "warm"))
    server.client_pause(10_000, all=False)
    call = asyncio.create_task(client.infer("m", "x", **fields))
    (own,) = connections(server, "batchfleet-client")
    async with asyncio.timeout(PATIENCE_S):
        while "b" not in own["flags"]:
            (own,) = await asyncio.to_thread(connections, server, "batchfleet-client")
    assert own["cmd"] == "xadd"
    server.client_kill_filter(_id=own["id"])
    server.client_unpause()
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        result = await call
    assert result.text == "x"
    assert stub.runs == {"warm": 1, fields.get("id", result.id): 1}
    assert client.waiting == 0


async def test_refusal_of_the_server_is_raised(client, server, keys):
    server.set(keys.ingress("default"), "no stream")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        await client.infer("m", "x")
    assert client.waiting == 0


async def test_reply_that_came_beside_an_error_is_not_lost(client, stub, keys):
    waiter, handle = client._waiter, await client.submit("m", "x")
    await waiter.confirm(keys, handle.id, PATIENCE_S)
    wait = waiter.expect(keys, handle.id, PATIENCE_S)
    wait.future.set_exception(UnreachableError("as if it had not been added"))
    waiter.read_soon(wait)
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        while wait.entry.outcome is None:
            await client.status(handle)
        waiter.renew(wait, PATIENCE_S)
        assert (await wait.future).id == handle.id
    waiter.forget(wait)
    assert client.waiting == 0


async def test_wait_that_was_left_does_not_touch_the_next_one(client, stub, keys):
    waiter, handle = client._waiter, await client.submit("m", "x")
    await reached(client, handle, State.OK)
    await waiter.confirm(keys, handle.id, PATIENCE_S)
    await client.status(handle)  # by now all have been read that the confirmation asked for
    left = waiter.expect(keys, handle.id, PATIENCE_S)
    waiter.read_soon(left)
    waiter.forget(left)
    wait = waiter.expect(keys, handle.id, PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        while waiter._asked:
            await client.status(handle)
    await client.status(handle)
    assert waiter._channels[keys.channel("default", handle.id)].entries == {handle.id: wait.entry}
    waiter.read_soon(wait)
    assert (await wait.future).id == handle.id
    waiter.forget(wait)


async def test_answered_requests_leave_no_cycles(client, stub):
    await client.infer("m", "warm")
    gc.collect()
    gc.disable()
    try:
        await client.infer("m", "x")
        # By type and not isinstance: other libraries warn when their objects are asked their class.
        assert not [item for item in gc.get_objects() if type(item) in (AwaitedId, Wait)]
    finally:
        gc.enable()


async def test_requests_outlast_a_restart_of_the_server(server_program, tmp_path):
    options = ServerOptions(
        program=server_program, port=free_port(), folder=tmp_path, append_only=True
    )
    restarted = EmbeddedServer(options)
    restarted.start()
    try:
        keys = deploy_model(restarted.url, "n", "m")
        async with AsyncClient(restarted.url, namespace="n", tenant="default") as client:
            early = await client.submit("m", "early")
            waiting = asyncio.create_task(client.result(early))
            async with asyncio.timeout(PATIENCE_S):
                while not client.waiting:
                    await client.poll(early)
            restarted.stop()
            other = asyncio.create_task(client.result(("m", "another-prefix"), timeout_s=5))
            late = asyncio.create_task(client.infer("m", "late"))
            with pytest.raises(ServerError):
                await client.poll(early)
            restarted.start()
            with StubFleet(restarted.url, keys):
                async with asyncio.timeout(PATIENCE_S):
                    assert [(await waiting).text, (await late).text] == ["early", "late"]
                    other.cancel()
    finally:
        restarted.stop()


async def test_waits_that_end_leave_nothing_behind(client, keys):
    handle = await client.submit("m", "x")
    with pytest.raises(WaitTimeoutError):
        await client.result(handle, timeout_s=0.01)
    assert client.waiting == 0
    long, short = (asyncio.create_task(client.result(handle, timeout_s=s)) for s in (60, 0.05))
    with pytest.raises(WaitTimeoutError):
        await short
    assert (client.waiting, long.done()) == (1, False)
    long.cancel()
    call = asyncio.create_task(client.result(handle))
    async with asyncio.timeout(PATIENCE_S):
        while client.waiting == 0:
            await client.poll(handle)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert client.waiting == 0
    assert [channel.entries for channel in client._waiter._channels.values()] == [{}]


async def test_thousands_of_callers_share_two_connections(client, stub, server, keys):
    stub.open.clear()
    calls = [asyncio.create_task(client.infer("m", str(n))) for n in range(5000)]
    await accepted(client, server, keys, 5000)
    ours = [c for c in server.client_list() if c["name"].startswith("batchfleet-client")]
    assert 1 <= len(ours) <= 4
    assert client.waiting == 5000
    stub.open.set()
    texts = [result.text for result in await asyncio.gather(*calls)]
    assert texts == [str(n) for n in range(5000)]
    assert client.waiting == 0


async def test_close_ends_what_waits(redis_url, namespace, keys, server):
    client = AsyncClient(redis_url, namespace=namespace, tenant="default")
    call = asyncio.create_task(client.infer("m", "x"))
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(server.xlen, keys.ingress("default")) == 0:
            pass
        await client.close()
        with pytest.raises(ClientClosedError):
            await call
    await client.close()
    # The server reads the end of a connection after the client closed it.
    await asyncio.to_thread(
        until, lambda: not connections(server, "batchfleet-client"), "its connections are gone"
    )
    for work in (client.infer("m", "x"), client.poll(("m", "x")), client.submit("m", "x")):
        with pytest.raises(ClientClosedError):
            await work


async def test_no_server_is_an_error_at_once():
    async with AsyncClient("redis://127.0.0.1:1/0", namespace="n", tenant="t") as client:
        for work in (client.infer("m", "x"), client.submit("m", "x"), client.poll(("m", "x"))):
            with pytest.raises(ServerError):
                await work
        assert client.waiting == 0


async def test_missing_permission_is_said_and_can_be_mended(redis_server, server, namespace, stub):
    user = f"user-{namespace}"
    rights = ("~*", "+@all", "-xadd", "resetchannels")
    server.execute_command("ACL", "SETUSER", user, "on", ">pw", *rights)
    url = url_as(redis_server.url, user, "pw")
    try:
        async with AsyncClient(url, namespace=namespace, tenant="default") as client:
            with pytest.raises(DeniedError, match=f"XADD on {namespace}:{{m}}:in:default"):
                await client.infer("m", "x")
            assert client.waiting == 0
            server.execute_command("ACL", "SETUSER", user, "+xadd")
            assert (await client.infer("m", "x")).text == "x"
    finally:
        server.execute_command("ACL", "DELUSER", user)


async def test_foreign_reply_is_not_handed_over(client, keys, server):
    handle = await client.submit("m", "x")
    body = {"id": "somebody", "tenant": "default", "status": "ok"}
    server.rpush(keys.reply("default", handle.id), json.dumps(body))
    with pytest.raises(Exception, match="another request's reply"):
        await client.result(handle)
    server.delete(keys.reply("default", handle.id))
    server.set(keys.reply("default", handle.id), "no list")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        await client.result(handle)


async def test_unreadable_notification_costs_nothing(client, stub, server, keys):
    stub.open.clear()
    call = asyncio.create_task(client.infer("m", "x", id="noise-01"))
    await reached(client, ("m", "noise-01"), State.ACCEPTED)
    for noise in (b"\xc1", b"\x91\xc1", b"\x01", b"\x91\x81\xa1a\x01"):
        assert server.execute_command("SPUBLISH", keys.channel("default", "noise-01"), noise) == 1
    stub.open.set()
    async with asyncio.timeout(SOONER_THAN_CHECK_S):
        assert (await call).text == "x"


async def test_error_reply_is_raised_with_its_parts(client, keys, redis_url, server):
    handle = await client.submit("m", "x")
    error = {"code": 300, "name": "model_error", "message": "broke", "rows": [2]}
    body = {"id": handle.id, "tenant": "default", "status": "error", "error": error}
    server.rpush(keys.reply("default", handle.id), json.dumps(body))
    with pytest.raises(ModelError, match="broke") as caught:
        await client.result(handle)
    assert caught.value.rows == (2,)
    with BlockingExecutor(redis_url, "look") as executor:
        assert executor.run(requests.tombstone(keys, "default", handle.id)) is None
