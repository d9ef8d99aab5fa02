"""Rolls onto a version that is the same but for its name, under bursts: chance must not end one."""

from tests.acceptance.measuring.promise import equals
from tests.acceptance.measuring.steady_load import OK, outcomes

from .arena import LOAD, quiet, rolling_fleet, saturation_per_s, steady
from .commands import must
from .records import COMPLETED, record_of, wait_over
from .versions import Stub

_BURST = 40
_OPTIONS = ("--steps", "10,50,100", "--hold", "3", "--strategy", "beside")
_TEXTS = ("hello", "good morning")


def identical_versions(*, quick):
    """To the other version and back again, while the load comes in bursts."""
    count, stub = 2 if quick else 10, Stub(base_ms=60.0)
    with rolling_fleet({"stub/1": stub, "stub/2": stub}) as fleet:
        rate_per_s = LOAD * saturation_per_s(fleet, "stub", _TEXTS, 3000)
        with steady(fleet, "stub", rate_per_s, texts=_TEXTS, burst=_BURST) as load:
            quiet(3.0)
            ends = [_roll(fleet) for _ in range(count)]
            load.stop()
    broken = [reason for phase, reason in ends if phase != COMPLETED]
    return [
        equals(
            f"{count} rolls onto the same under bursts of up to {2 * _BURST - 1} at "
            f"{rate_per_s:.0f}/s: completed {'; '.join(broken)}",
            count - len(broken),
            count,
        ),
        equals(
            f"… errors ({outcomes(load.requests)})",
            sum(one.outcome != OK for one in load.requests),
            0,
        ),
    ]


def _roll(fleet):
    other = "2" if record_of(fleet, "stub").stable == "1" else "1"
    must(fleet, "roll", "start", f"stub/{other}", *_OPTIONS)
    record = wait_over(fleet, "stub")
    return record.phase, record.roll.get("reason", "")
