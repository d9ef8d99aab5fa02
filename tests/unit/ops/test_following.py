"""Who follows a deploy record, read from the twin; the wait, on a clock that the test moves."""

import pytest
from support.broker_wire import RECORD, TENANT, TTL_MS, wired
from support.manual_clock import ManualClock

from batchfleet.broker import fleet, membership
from batchfleet.ops import deployment
from batchfleet.ops.deployment import Operator
from batchfleet.ops.following import (
    Follower,
    Following,
    NotFollowedError,
    await_following,
    read_following,
)
from batchfleet.router.presence import Presence
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.announcements import WorkerAnnouncement
from batchfleet.wire.deployment import Stamp
from batchfleet.wire.keys import router_key

NEW, OLD = Stamp(2, "b"), Stamp(1, "a")


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "n") as found:
        yield found


@pytest.fixture
def operator(wire):
    return Operator(executor=wire.executor, namespace="n", draw_nonce=iter("abcdef").__next__)


def route(wire, name, **stamps):
    presence = Presence("n", name, 60_000)
    presence.announce(wire.executor, stamps)
    return presence


def said(stamp):
    return WorkerAnnouncement(versions={}, stamp=stamp, facts={}).to_fields()


def work(wire, name, stamp):
    assert wire.run(membership.join(wire.keys, name, TTL_MS, said(stamp)))


def beat(wire, name, stamp):
    assert wire.run(membership.beat(wire.keys, name, TTL_MS, said(stamp)))


def read(operator, *workers):
    found = read_following(operator, "m", workers)
    return found.behind, found.silent


def test_who_acts_by_an_older_record_is_behind(wire, operator):
    seen = wire.stamp()
    presence = route(wire, "r1", m=seen)
    route(wire, "r2", other=seen)
    work(wire, "w1", seen)
    work(wire, "w2", None)
    assert read(operator) == (["router r2", "worker w2"], [])
    deployment.set_intake(operator, "m", "hold")
    assert read(operator) == (["router r1", "router r2", "worker w1", "worker w2"], [])
    presence.announce(wire.executor, {"m": wire.stamp()})
    beat(wire, "w1", wire.stamp())
    assert read(operator) == (["router r2", "worker w2"], [])


def test_the_same_epoch_of_another_life_is_another_record(wire, operator):
    route(wire, "r1", m=Stamp(wire.stamp().epoch, "of before"))
    assert read(operator) == (["router r1"], [])


def test_who_has_lost_its_heartbeat_is_left_out_and_named(wire, operator):
    for name in ("r1", "r2"):
        route(wire, name, m=OLD)
        work(wire, f"w-{name}", OLD)
    wire.ask("DEL", router_key("n", "r1"), wire.keys.worker("w-r1"))
    assert read(operator) == (["router r2", "worker w-r2"], ["router r1", "worker w-r1"])
    assert wire.run(membership.bury(wire.keys, "w-r2", 1))
    assert read(operator) == (["router r2"], ["router r1", "worker w-r1", "worker w-r2"])


def test_a_foreign_key_in_the_place_of_an_announcement_is_no_sign_of_a_router(wire, operator):
    route(wire, "r1", m=OLD)
    wire.ask("DEL", router_key("n", "r1"))
    wire.ask("RPUSH", router_key("n", "r1"), "foreign")
    assert read(operator) == ([], ["router r1"])


def test_who_has_left_is_not_named(wire, operator):
    route(wire, "r1", m=OLD).leave(wire.executor)
    work(wire, "w1", OLD)
    wire.run(membership.leave(wire.keys, "w1"))
    assert read(operator) == ([], [])


def test_of_a_model_that_is_gone_everybody_has_to_let_go(wire, operator):
    seen = wire.stamp()
    presence = route(wire, "r1", m=seen, other=seen)
    work(wire, "w1", seen)
    deployment.undeploy(operator, "m")
    assert read(operator, "w1") == (["router r1", "worker w1"], [])
    presence.announce(wire.executor, {"other": seen})
    wire.executor.run_all(membership.vanish(wire.keys, "w1"))
    assert read(operator, "w1") == ([], [])


def test_a_record_that_others_change_meanwhile_is_the_one_to_follow(wire, operator):
    deployment.set_intake(operator, "m", "hold")
    streams = fleet.queue_streams(wire.keys, RECORD)
    wire.run(fleet.deploy(wire.keys, RECORD, streams, "others", [TENANT]))
    route(wire, "r1", m=wire.stamp())
    assert read(operator) == ([], [])


# The wait.


def state(*stamps, silent=()):
    alive = [Follower(name=f"r{at}", kind="router", stamp=one) for at, one in enumerate(stamps)]
    gone = [Follower(name=name, kind="router", is_silent=True) for name in silent]
    return Following(stamp=NEW, programs=[*alive, *gone])


def waited(*states, wait_ms=1_000):
    """What the wait ends with, how long it took, and whom it told of."""
    clock, left, told = ManualClock(), list(states), []
    began_ms = clock.monotonic_ms()
    found = await_following(
        lambda: left.pop(0) if len(left) > 1 else left[0],
        wait_ms,
        clock,
        lambda pause_s: clock.advance(1000 * pause_s),
        lambda now: told.append(now.behind),
    )
    return found, clock.monotonic_ms() - began_ms, told


def test_the_wait_ends_once_the_last_follows():
    found, waited_ms, told = waited(state(OLD, OLD), state(NEW, OLD), state(NEW, NEW))
    assert (found.behind, waited_ms) == ([], 200)
    assert told == [["router r0", "router r1"], ["router r1"]]
    found.require_followed(1)


def test_one_that_is_silent_keeps_nobody_waiting():
    found, waited_ms, _ = waited(state(NEW, silent=["gone"]))
    assert (found.silent, waited_ms) == (["router gone"], 0)
    found.require_followed(1)
    assert found.has_router


def test_after_the_time_those_behind_are_named():
    found, waited_ms, _ = waited(state(NEW, OLD, None))
    assert waited_ms >= 1_000
    with pytest.raises(NotFollowedError, match=r"within 1 s: router r1, router r2\. The change"):
        found.require_followed(1)


def test_without_a_router_there_is_nobody_to_wait_for():
    found, waited_ms, _ = waited(Following(stamp=NEW, programs=()))
    assert (found.has_router, waited_ms) == (False, 0)
    silent = Following(stamp=NEW, programs=[Follower(name="r", kind="router", is_silent=True)])
    assert not silent.has_router
