"""What brokers say of themselves and of faults; and that the twin knows neither less nor more."""

import re

import pytest
from support.script_scenes import SOURCES

from batchfleet.broker import fleet, requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.errors import RefusedError
from batchfleet.testing.twin.server import COMMAND_NAMES, REFUSED_WHEN_FULL


def test_the_server_tells_of_itself(wire):
    info = wire.run(fleet.server_info())
    assert info.version
    assert len(info.run_id) == 40
    assert (info.maxmemory, info.append_only) == (0, False)
    assert wire.run(fleet.ping()) in (b"PONG", "PONG")
    assert wire.run(fleet.server_time()) > 1_600_000_000_000


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        (("NONSENSE", "{t}"), "ERR"),
        (("RPUSH", "{t}text", "x"), "WRONGTYPE"),
        (("ZADD", "{t}text", "1", "x"), "WRONGTYPE"),
        (("XADD", "{t}text", "*", "a", "b"), "WRONGTYPE"),
        (("XLEN", "{t}text"), "WRONGTYPE"),
        (("BLPOP", "{t}text", "1"), "WRONGTYPE"),
        (("HGETALL", "{t}text"), "WRONGTYPE"),
        (("SMEMBERS", "{t}text"), "WRONGTYPE"),
        (("GET", "{t}list"), "WRONGTYPE"),
        (("XADD", "{t}new", "*", "a"), "ERR"),
        (("ZADD", "{t}new", "many", "x"), "ERR"),
        (("GET",), "ERR"),
    ],
)
def test_errors_have_the_codes_of_the_server(wire, parts, code):
    prefix = f"{wire.keys.namespace}:{{t}}"
    wire.ask("SET", f"{prefix}text", "x")
    wire.ask("RPUSH", f"{prefix}list", "x")
    named = [part.replace("{t}", prefix) for part in parts]
    with pytest.raises(RefusedError) as caught:
        wire.ask(*named)
    assert caught.value.code == code
    assert wire.ask("EXISTS", f"{prefix}new") == 0


def test_an_error_stands_in_the_place_of_its_command(wire):
    wire.open("a")
    bad, good = plain(as_is, "RPUSH", wire.keys.due, "x"), requests.open_requests(wire.keys)
    refused, count = wire.executor.run_each([bad, good])
    assert (refused.code, count) == ("WRONGTYPE", 1)
    with pytest.raises(RefusedError):
        wire.executor.run_all([bad, good])
    assert wire.executor.run_each([]) == []


# What the twin knows.


def test_the_twin_has_every_command_of_every_script():
    called = {
        name for source in SOURCES.values() for name in re.findall(r"\.p?call\('(\w+)'", source)
    }
    assert len(called) > 20
    assert called <= COMMAND_NAMES


def test_the_twin_refuses_when_full_what_a_server_refuses(served_wire):
    infos = served_wire.ask("COMMAND", "INFO", *sorted(COMMAND_NAMES))
    by_name = dict(zip(sorted(COMMAND_NAMES), infos, strict=True))
    assert None not in by_name.values()
    refused = {name for name, info in by_name.items() if _is_refused_when_full(info)}
    assert refused == {name.decode() for name in REFUSED_WHEN_FULL}


def _is_refused_when_full(info):
    flags, subcommands = info[2], info[9] if len(info) > 9 else ()
    return b"denyoom" in flags or any(
        sub[0] == b"xgroup|create" and b"denyoom" in sub[2] for sub in subcommands
    )
