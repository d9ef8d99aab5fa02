"""What `deploy` makes of what the workers say."""

import pytest
from support.broker_wire import TTL_MS, wired
from support.manual_clock import ManualClock

from batchfleet.broker import membership
from batchfleet.ops.deployment import Operator
from batchfleet.ops.verdict import Verdict, await_verdict, read_verdict
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.announcements import WorkerAnnouncement
from batchfleet.wire.deployment import Stamp

WAIT_MS = 5000
NOBODY = Verdict()
STRANGERS = Verdict(elsewhere=2)
LOADING = Verdict(workers=2)
HALF = Verdict(workers=2, refused={"a": "no wheel"})
REFUSED = Verdict(workers=2, refused={"a": "no wheel", "b": "no wheel"})
READY = Verdict(workers=2, ready=1, refused={"a": "no wheel"})


def waited(*said):
    """The verdict, and how long it was waited for, where each look finds the next of `said`."""
    clock, looks = ManualClock(), iter(said)
    last = said[-1]
    verdict = await_verdict(
        lambda: next(looks, last), WAIT_MS, clock, lambda s: clock.advance(s * 1000)
    )
    return verdict, clock.monotonic_ms()


def test_nobody_is_waited_for_where_there_are_no_workers():
    assert waited(NOBODY) == (NOBODY, 0)
    assert not NOBODY.all_refuse


def test_the_first_that_serves_it_ends_the_wait():
    assert waited(STRANGERS, LOADING, HALF, READY) == (READY, 300)
    assert not READY.all_refuse


def test_refusals_end_the_wait_once_nobody_is_left():
    verdict, waited_ms = waited(STRANGERS, HALF, REFUSED)
    assert waited_ms == 200
    assert (verdict.all_refuse, verdict.reasons) == (True, "no wheel")


@pytest.mark.parametrize("last", [LOADING, HALF, STRANGERS])
def test_who_has_not_said_anything_may_yet_serve_it(last):
    verdict, waited_ms = waited(last)
    assert waited_ms >= WAIT_MS
    assert verdict.is_open
    assert not verdict.all_refuse


def said_by(epoch, **states):
    """What a worker announces that acts by the record of this epoch: `v2="ready"`."""
    versions = {
        name.removeprefix("v"): {"state": state, "reason": "no wheel"}
        for name, state in states.items()
    }
    return WorkerAnnouncement(versions=versions, stamp=Stamp(epoch, "n"), facts={}).to_fields()


def test_only_who_acts_by_the_record_that_asks_is_heard():
    """A worker tries a refused version again when it is deployed again."""
    with wired(MemoryBroker(MemoryServer()), "n") as wire:
        operator = Operator(executor=wire.executor, namespace="n", draw_nonce=str)
        for name, epoch, state in (("a", 4, "refused"), ("b", 5, "refused"), ("c", 6, "ready")):
            fields = said_by(epoch, v1="ready", v2=state)
            assert wire.run(membership.join(wire.keys, name, TTL_MS, fields))
        verdict = read_verdict(operator, "m", "2", epoch=5, stable="1")
        assert (verdict.workers, verdict.ready, verdict.serving) == (3, 1, 3)
        assert (verdict.refused, verdict.may_serve) == ({"b": "no wheel"}, 2)
        assert set(verdict.said) == {"a", "b", "c"}
        later = read_verdict(operator, "m", "2", epoch=7, stable="1")
        assert (later.ready, later.refused, later.is_open) == (0, {}, True)
