"""Loops: when they try again, and when they count as standing still."""

import pytest
from support.loops import Watch

from batchfleet.broker.errors import DeniedError, UnreachableError, refused
from batchfleet.service.back_off import BackOff

AWAY = UnreachableError("gone")
BLOCK_S = 1.0
LIMIT_MS = 2 * 1000 * BLOCK_S + 5000


@pytest.fixture
def watch():
    return Watch()


def tries_of(watch, loops, duration_ms, error=AWAY, step_ms=10):
    """How often loops try within a time in which each try fails at once."""
    tries = 0
    for _ in range(0, duration_ms, step_ms):
        for loop in loops:
            if loop.delay_s() == 0:
                tries += 1
                loop.failed(error)
        watch.clock.advance(step_ms)
    return tries


@pytest.mark.parametrize("loops", [1, 4, 12])
def test_a_program_tries_sixty_times_in_thirty_seconds_at_most(watch, loops):
    heart = watch.loop("heart", back_off=BackOff(longest_s=1.0), goes_first=True)
    others = [watch.loop(f"loop {at}") for at in range(loops)]
    assert 5 <= tries_of(watch, [heart, *others], 30_000) <= 60
    assert watch.log.names() == ["server.lost"]


@pytest.mark.parametrize("said", ["NOGROUP no such key", "OOM full", "WRONGTYPE of a key", "ERR x"])
def test_an_error_that_is_answered_at_once_makes_no_hot_loop(watch, said):
    assert tries_of(watch, [watch.loop()], 30_000, refused(said)) <= 60
    assert len(watch.log.lines) <= 1


def test_everybody_continues_within_five_seconds_of_the_servers_return(watch):
    loops = [watch.loop(f"loop {at}") for at in range(12)]
    tries_of(watch, loops, 60_000)
    gone_on = set()
    for _ in range(500):
        for loop in loops:
            if loop.delay_s() == 0:
                loop.worked()
                gone_on.add(loop.name)
        watch.clock.advance(10)
    assert len(gone_on) == 12
    assert watch.log.names() == ["server.lost", "server.back"]
    assert watch.log.lines[-1][1]["gap_ms"] <= 65_000


def test_a_success_starts_the_pauses_again(watch):
    loop = watch.loop()
    tries_of(watch, [loop], 30_000)
    loop.worked()
    assert loop.delay_s() == 0
    loop.failed(refused("OOM"))
    assert 0.025 <= loop.delay_s() <= 0.05


def test_a_heart_waits_for_nobodys_turn(watch):
    other, heart = watch.loop("other"), watch.loop("heart", goes_first=True)
    for loop in (other, heart):
        loop.failed(AWAY)
    watch.clock.advance(100)
    assert other.delay_s() == 0
    assert heart.delay_s() == 0


@pytest.mark.parametrize("code", ["NOAUTH", "WRONGPASS", "NOPERM"])
def test_who_is_not_let_in_does_not_try_again(watch, code):
    with pytest.raises(DeniedError):
        watch.loop().failed(refused(f"{code} go away"))


def test_a_fault_of_ours_is_no_outage_and_makes_no_hot_loop(watch):
    loop = watch.loop()
    tries = 0
    for _ in range(3000):
        if loop.delay_s() == 0:
            tries += 1
            loop.broke()
        watch.clock.advance(10)
    assert 5 <= tries <= 60
    assert watch.log.names() == []


def test_a_loop_gets_its_turn_beside_others_that_fail_all_the_time(watch):
    """A keeper that looks ten times a second, beside pumps that are ready to the millisecond."""
    keeper, pumps = watch.loop("keeper"), [watch.loop(f"pump {at}") for at in range(3)]
    tries = 0
    for at_ms in range(0, 30_000, 10):
        for loop in (*pumps, *((keeper,) if at_ms % 100 == 0 else ())):
            if loop.delay_s() == 0:
                tries += loop is keeper
                loop.failed(AWAY)
        watch.clock.advance(10)
    assert tries >= 4


def wait_for_turn(watch, loop):
    while (delay_s := loop.delay_s()) > 0:
        watch.clock.advance(delay_s * 1000)


def test_a_delay_grows_shorter_and_ends(watch):
    loop = watch.loop()
    loop.failed(AWAY)
    before_s = loop.delay_s()
    watch.clock.advance(before_s * 400)
    assert 0 < loop.delay_s() < before_s
    wait_for_turn(watch, loop)
    assert loop.delay_s() == 0


# The watch.


def test_a_loop_that_stands_still_is_reported_once_and_so_is_its_recovery(watch):
    loop, other = watch.loop("intake m", BLOCK_S), watch.loop("heart", BLOCK_S)
    watch.clock.advance(LIMIT_MS)
    watch.watchdog.look()
    assert watch.log.lines == [], "just within the limit"
    other.worked()
    watch.clock.advance(1)
    for _ in range(5):
        watch.watchdog.look()
    assert watch.log.lines == [("loop.stalled", {"loop": "intake m", "silent_ms": 7001})]
    assert watch.watchdog.stalled == ("intake m",)
    loop.passed()
    watch.watchdog.look()
    assert watch.log.lines[1:] == [("loop.resumed", {"loop": "intake m", "gap_ms": 7001})]
    assert watch.watchdog.stalled == ()


def test_a_loop_that_fails_and_waits_is_not_standing_still(watch):
    loop = watch.loop("intake m", BLOCK_S)
    for _ in range(100):
        loop.failed(AWAY)
        wait_for_turn(watch, loop)
        watch.watchdog.look()
    assert watch.log.names() == ["server.lost"]


def test_a_loop_that_has_ended_is_not_missed(watch):
    with watch.loop("pump m"):
        watch.clock.advance(LIMIT_MS + 1)
        watch.watchdog.look()
        assert watch.watchdog.stalled == ("pump m",)
    watch.watchdog.look()
    assert watch.watchdog.stalled == ()
    watch.clock.advance(LIMIT_MS + 1)
    watch.watchdog.look()
    assert watch.log.names() == ["loop.stalled"]


def test_a_fault_of_the_watch_does_not_end_it(watch, monkeypatch):
    watch.loop("intake m", BLOCK_S)
    watch.clock.advance(LIMIT_MS + 1)
    with monkeypatch.context() as patch:
        patch.setattr(watch.watchdog, "_since_ms", None)
        watch.watchdog.look()
        watch.watchdog.look()
    assert watch.log.names() == ["watchdog.failed"]
    watch.watchdog.look()
    assert watch.log.names() == ["watchdog.failed", "loop.stalled"]
