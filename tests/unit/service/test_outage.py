"""What a program tells of an outage, and how often it asks after its server."""

import pytest
from support.loops import Watch

from batchfleet.broker.errors import UnreachableError, refused

AWAY = UnreachableError("gone")
FULL = refused("OOM command not allowed")


@pytest.fixture
def watch():
    return Watch()


def test_one_outage_is_two_lines_however_many_suffer(watch):
    for loop in ("a", "b", "c", "a"):
        watch.outage.begins(AWAY, loop)
    watch.clock.advance(3000)
    for loop in ("b", "a", "b"):
        watch.outage.ends(loop)
    assert watch.log.names() == ["server.lost"], "one still suffers"
    watch.outage.ends("c")
    assert watch.log.lines[1:] == [("server.back", {"gap_ms": 3000})]
    assert not watch.outage.is_on


def test_the_success_of_others_does_not_end_what_one_suffers_from(watch):
    for _ in range(50):
        watch.outage.begins(AWAY, "pump")
        watch.outage.ends("keeper")
    assert watch.log.names() == ["server.lost"]


def test_what_nobody_in_particular_suffered_from_ends_with_anybodys_success(watch):
    watch.outage.begins(AWAY)
    watch.outage.ends("keeper")
    assert watch.log.names() == ["server.lost", "server.back"]


def test_a_loop_that_ends_leaves_its_outage_to_the_others(watch):
    watch.outage.begins(AWAY, "pump")
    watch.outage.forget("pump")
    assert watch.log.names() == ["server.lost"]
    watch.outage.ends("keeper")
    assert watch.log.names() == ["server.lost", "server.back"]


def test_a_refusal_is_told_once_a_minute_and_code(watch):
    for _ in range(100):
        watch.outage.begins(FULL, "device")
        watch.outage.begins(refused("WRONGTYPE of a key"), "keeper")
        watch.outage.ends("device")
    assert [fields["code"] for _, fields in watch.log.lines] == ["OOM", "WRONGTYPE"]
    watch.clock.advance(60_001)
    watch.outage.begins(FULL, "device")
    assert watch.log.names() == ["server.refused"] * 3
    assert not watch.outage.is_on


def test_one_asks_after_a_server_that_is_away_and_the_others_wait(watch):
    watch.outage.begins(AWAY, "a")
    assert watch.outage.turn_s() == 0
    assert 0 < watch.outage.turn_s() <= 1
    watch.clock.advance(1000)
    assert watch.outage.turn_s() == 0
    assert watch.outage.turn_s() > 0
    watch.outage.ends("a")
    assert [watch.outage.turn_s() for _ in range(5)] == [0] * 5, "it is back: all may ask"


@pytest.mark.parametrize("said", ["NOGROUP no such key", "WRONGTYPE of a key", "OOM", "ERR what"])
def test_an_error_that_the_server_answers_with_shows_that_it_is_back(watch, said):
    watch.outage.begins(AWAY, "pump")
    watch.outage.begins(AWAY, "keeper")
    watch.clock.advance(2000)
    watch.outage.begins(refused(said), "pump")
    assert [watch.outage.turn_s("keeper") for _ in range(3)] == [0] * 3, "all may ask at once"
    watch.outage.ends("keeper")
    assert "server.back" in watch.log.names()
    assert not watch.outage.is_on


@pytest.mark.parametrize("said", ["LOADING its data", "CLUSTERDOWN", "MASTERDOWN"])
def test_a_server_that_cannot_serve_yet_is_away_still(watch, said):
    watch.outage.begins(AWAY, "pump")
    watch.outage.begins(refused(said), "pump")
    assert watch.outage.is_on
    assert watch.log.names() == ["server.lost"]


def test_turns_are_given_in_the_order_in_which_they_were_asked_for(watch):
    """However often some ask, and however late one does."""
    watch.outage.begins(AWAY, "a")
    slow, hasty = "keeper", ("pump 1", "pump 2", "pump 3")
    given = []
    for at_ms in range(0, 12_000, 10):
        for name in (*hasty, *((slow,) if at_ms % 500 == 0 else ())):
            given += [name] * (watch.outage.turn_s(name) == 0)
        watch.clock.advance(10)
    assert given.count(slow) >= 2
    assert all(given.count(name) >= 3 for name in hasty)
    assert len(given) <= 13


def test_who_goes_first_leaves_turns_to_the_others(watch):
    watch.outage.begins(AWAY, "a")
    given = []
    for _ in range(60):
        given += ["heart"] * (watch.outage.turn_s("heart", goes_first=True) == 0)
        given += [name for name in ("b", "c") if watch.outage.turn_s(name) == 0]
        watch.clock.advance(500)
    assert given.count("heart") == 60
    assert 1 <= given.count("b") <= 3
    assert 1 <= given.count("c") <= 3


def test_a_loop_that_ends_leaves_its_turn(watch):
    watch.outage.begins(AWAY, "a")
    assert watch.outage.turn_s("a") == 0
    assert 0 < watch.outage.turn_s("b") <= 1
    watch.outage.forget("b")
    watch.clock.advance(2000)
    assert watch.outage.turn_s("c") == 0
