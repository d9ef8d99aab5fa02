"""What `deploy` makes of what the workers say."""

import pytest
from support.manual_clock import ManualClock

from batchfleet.ops.verdict import AllRefuseError, Verdict, await_verdict

WAIT_MS = 5000
NOBODY = Verdict()
STRANGERS = Verdict(elsewhere=2)
LOADING = Verdict(workers=2)
HALF = Verdict(workers=2, refused={"a": "no wheel"})
REFUSED = Verdict(workers=2, refused={"a": "no wheel", "b": "no wheel"})
READY = Verdict(workers=2, ready=1, refused={"a": "no wheel"})


def waited(*said, before=NOBODY):
    """The verdict, and how long it was waited for, where each look finds the next of `said`."""
    clock, looks = ManualClock(), iter(said)
    last = said[-1]
    verdict = await_verdict(
        lambda: next(looks, last), before, WAIT_MS, clock, lambda s: clock.advance(s * 1000)
    )
    return verdict, clock.monotonic_ms()


def test_nobody_is_waited_for_where_there_are_no_workers():
    assert waited(NOBODY) == (NOBODY, 0)


def test_the_first_that_serves_it_ends_the_wait():
    assert waited(STRANGERS, LOADING, HALF, READY) == (READY, 300)
    READY.raise_if_all_refuse("m", "2")


def test_refusals_end_the_wait_once_nobody_is_left():
    verdict, waited_ms = waited(STRANGERS, HALF, REFUSED)
    assert waited_ms == 200
    with pytest.raises(AllRefuseError, match="all 2 workers refuse it: no wheel") as caught:
        verdict.raise_if_all_refuse("m", "2")
    assert "deploy the previous version: `batchfleet deploy m/VERSION`" in str(caught.value)


def test_refusals_of_before_count_once_time_is_up():
    """A worker tries a refused version again when it is deployed again."""
    assert waited(REFUSED, LOADING, READY, before=REFUSED) == (READY, 200)
    verdict, waited_ms = waited(REFUSED, before=REFUSED)
    assert waited_ms >= WAIT_MS
    with pytest.raises(AllRefuseError):
        verdict.raise_if_all_refuse("m", "2")


@pytest.mark.parametrize("last", [LOADING, HALF, STRANGERS])
def test_who_has_not_said_anything_may_yet_serve_it(last):
    verdict, waited_ms = waited(last)
    assert waited_ms >= WAIT_MS
    assert verdict.is_open
    verdict.raise_if_all_refuse("m", "2")
