import os

import pytest

from benchmarks.processes import Conversation, MeasuringError, cpu_s, run_for_json

GONE = 2**22 + 1  # above the highest process id that Linux gives


def test_the_last_line_and_the_exit_code_are_kept():
    finished = run_for_json("batchfleet.ops", ["settings", "--json"], 60.0)
    assert finished.exit_code == 0
    assert finished.last_line["lease_ms"]["default"] == 3000


def test_a_program_without_json_is_an_error():
    with pytest.raises(MeasuringError, match="exit code 0 and without"):
        run_for_json("batchfleet.ops", ["--help"], 60.0)


def test_a_child_that_says_something_else_is_an_error():
    child = Conversation("batchfleet.ops", "--help")
    with child, pytest.raises(MeasuringError, match="said b'Usage"):
        child.start(60.0)


def test_a_child_that_ends_is_an_error():
    child = Conversation("benchmarks.nosuch")
    with child, pytest.raises(MeasuringError, match="ended"):
        child.start(60.0)


def test_a_silent_child_is_an_error(redis_server):
    with Conversation("benchmarks.raw_floor.client", redis_server.socket_url) as child:
        assert child.start(60.0) == {"ready": True}
        with pytest.raises(MeasuringError, match="said nothing"):
            child.listen(0.01)


def test_cpu_is_summed_over_a_name():
    own = os.getpid()
    once, twice = cpu_s({"once": [own], "twice": [own, own]}).values()
    assert once > 0
    assert twice == pytest.approx(2 * once, abs=0.1)


def test_a_process_that_is_gone_is_an_error():
    with pytest.raises(MeasuringError, match="ended during"):
        cpu_s({"gone": [GONE]})
