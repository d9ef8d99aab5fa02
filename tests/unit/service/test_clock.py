from pathlib import Path

import pytest
from support.manual_clock import ManualClock

from batchfleet.service.clock import SystemClock


def test_system_clock_moves_forward_in_milliseconds():
    clock = SystemClock()
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
    # 2020 to 2100: milliseconds, not seconds or nanoseconds.
    assert 1_577_836_800_000 < clock.wall_ms() < 4_102_444_800_000


def test_manual_clock_stands_until_it_is_advanced():
    clock = ManualClock(wall_ms=1000.0)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (0.0, 1000.0)
    clock.advance(250.5)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (250.5, 1250.5)


def test_wall_time_jumps_alone():
    clock = ManualClock(wall_ms=1000.0)
    clock.jump_wall(-400.0)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (0.0, 600.0)


def test_monotonic_time_never_goes_back():
    with pytest.raises(ValueError, match="cannot pass"):
        ManualClock().advance(-1)


def test_a_clock_that_jumps_changes_nothing_for_router_and_worker():
    """They read no wall clock, and `time` is this module's alone (tests/tidy)."""
    root = Path(__file__).parents[3]
    code = [path for folder in ("router", "consumer") for path in (root / folder).rglob("*.py")]
    assert len(code) > 30
    assert [path.name for path in code if "wall_ms" in path.read_text()] == []
    assert [path.name for path in code if "datetime" in path.read_text()] == []
