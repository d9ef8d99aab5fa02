"""Routers announce themselves and are seen, on every server."""

import pytest
from support.broker_wire import TTL_MS

from batchfleet.broker import routers
from batchfleet.router.presence import Presence
from batchfleet.wire.deployment import Stamp
from batchfleet.wire.keys import router_key, routers_key

STAMPS = {"m": Stamp(3, "abc"), "other": Stamp(2**63, "ü")}


@pytest.fixture
def presence(wire):
    return Presence(wire.keys.namespace, "r1", 60_000)


def names(wire):
    return wire.run(routers.names(wire.keys.namespace))


def stamps(wire, router="r1"):
    return wire.run(routers.stamps(wire.keys.namespace, router))


def expire(wire, router="r1"):
    """Its time to live is over, as after three refreshes without a sign."""
    wire.ask("DEL", router_key(wire.keys.namespace, router))


def test_a_router_tells_by_which_records_it_acts(wire, presence):
    presence.announce(wire.executor, STAMPS)
    assert (names(wire), stamps(wire)) == (["r1"], STAMPS)
    presence.announce(wire.executor, {"m": Stamp(4, "x")})
    assert stamps(wire) == {"m": Stamp(4, "x")}
    presence.announce(wire.executor, {})
    assert stamps(wire) == {}, "it lives, and nothing is deployed"


def test_it_lives_for_three_refreshes_and_its_name_has_an_end(wire, presence):
    presence.announce(wire.executor, STAMPS)
    key = router_key(wire.keys.namespace, "r1")
    assert 170_000 < wire.ask("PTTL", key) <= 180_000
    wire.ask("PEXPIRE", key, 100_000)
    presence.announce(wire.executor, STAMPS)
    assert 170_000 < wire.ask("PTTL", key) <= 180_000
    assert wire.ask("PTTL", routers_key(wire.keys.namespace)) > 3_000_000


def test_one_that_comes_back_tells_all_again(wire, presence):
    presence.announce(wire.executor, STAMPS)
    expire(wire)
    assert (names(wire), stamps(wire)) == (["r1"], None)
    wire.run(routers.prune_names(wire.keys.namespace, ["r1"]))
    presence.announce(wire.executor, STAMPS)
    assert (names(wire), stamps(wire)) == (["r1"], STAMPS)


def test_one_that_stops_is_gone_at_once(wire, presence):
    presence.announce(wire.executor, STAMPS)
    Presence(wire.keys.namespace, "r2", 60_000).announce(wire.executor, STAMPS)
    presence.leave(wire.executor)
    assert (names(wire), stamps(wire)) == (["r2"], None)


def test_names_of_routers_that_died_do_not_pile_up(wire):
    for at in range(20):
        Presence(wire.keys.namespace, f"r{at}", 60_000).announce(wire.executor, STAMPS)
        expire(wire, f"r{at}")
    assert names(wire) == ["r19"]


def test_a_foreign_key_gives_way(wire, presence):
    name, key = routers_key(wire.keys.namespace), router_key(wire.keys.namespace, "r1")
    for _ in range(2):
        for place in (name, key):
            wire.ask("DEL", place)
            wire.ask("RPUSH", place, "foreign")
            wire.ask("PEXPIRE", place, TTL_MS)
        presence.announce(wire.executor, STAMPS)
        assert (names(wire), stamps(wire)) == (["r1"], STAMPS)


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"models": 1}', b'{"models": {"m": 1}}'])
def test_what_others_wrote_says_nothing(wire, said):
    wire.ask("SET", router_key(wire.keys.namespace, "r1"), said, "PX", TTL_MS)
    assert stamps(wire) == {}


def test_what_is_no_name_is_passed_over(wire, presence):
    presence.announce(wire.executor, STAMPS)
    wire.ask("SADD", routers_key(wire.keys.namespace), b"\xff", "a b", "")
    assert names(wire) == ["r1"]


def test_the_cost_does_not_grow_with_the_models(wire, presence):
    """Two hundred of them are listed once, and then in no refresh."""
    many = {f"model-{at}": Stamp(at, "0123456789abcdef") for at in range(200)}
    presence.announce(wire.executor, many)
    assert stamps(wire) == many
    sent = []

    class Counting:
        def run_each(self, commands):
            sent.append(commands)
            return wire.executor.run_each(commands)

    presence.announce(Counting(), many)
    (commands,) = sent
    parts = [part for command in commands for part in command.parts]
    assert (len(commands), len("".join(map(str, parts))) < 200) == (4, True)
