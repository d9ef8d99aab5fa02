import os

import pytest

from batchfleet.models import measurements
from batchfleet.models.measurements import Measurements

VERSION = {"lineage": "a" * 16, "code": "b" * 64}
SITUATION = {"cpu": "one", "threads": 1}
FOUND = {"engine": "packed", "curve": [[1, 16, 2.5]]}


@pytest.fixture
def kept(tmp_path):
    return Measurements(tmp_path / "cache", VERSION)


@pytest.fixture
def path_of(kept, tmp_path):
    """Keep something, and return the file in which it lies."""

    def path_of():
        kept.keep(SITUATION, FOUND)
        (path,) = (tmp_path / "cache" / "measured").glob("*")
        return path

    return path_of


def test_what_was_kept_is_found_by_the_next_process(kept, tmp_path):
    assert kept.find(SITUATION) is None
    kept.keep(SITUATION, FOUND)
    assert Measurements(tmp_path / "cache", dict(VERSION)).find(dict(SITUATION)) == FOUND


def test_another_version_or_situation_is_measured_anew(kept, tmp_path):
    kept.keep(SITUATION, FOUND)
    assert kept.find({**SITUATION, "threads": 2}) is None
    other = Measurements(tmp_path / "cache", {**VERSION, "lineage": "c" * 16})
    assert other.find(SITUATION) is None


def test_what_is_kept_again_takes_the_place_of_what_was(kept):
    kept.keep(SITUATION, FOUND)
    kept.keep(SITUATION, {"engine": "plain"})
    assert kept.find(SITUATION) == {"engine": "plain"}


def test_all_that_is_known_of_a_version_is_listed_the_newest_first(kept, tmp_path):
    other = Measurements(tmp_path / "cache", {**VERSION, "lineage": "c" * 16})
    other.keep(SITUATION, "not ours")
    for threads in (1, 2):
        kept.keep({"threads": threads}, f"with {threads}")
        for path in (tmp_path / "cache" / "measured").glob("*"):
            age = path.stat().st_mtime_ns - 10**9
            os.utime(path, ns=(age, age))
    assert kept.all_found() == [({"threads": 2}, "with 2"), ({"threads": 1}, "with 1")]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b" " * 200_000])
def test_a_damaged_file_counts_as_none(kept, path_of, content):
    path_of().write_bytes(content)
    assert kept.find(SITUATION) is None
    kept.keep(SITUATION, FOUND)
    assert kept.find(SITUATION) == FOUND


def test_a_file_that_others_may_write_counts_as_none(kept, path_of):
    path_of().chmod(0o666)
    assert kept.find(SITUATION) is None


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(kept, path_of):
    path = path_of()
    path.unlink()
    os.mkfifo(path, 0o600)
    assert kept.find(SITUATION) is None


def test_a_place_that_cannot_be_written_keeps_nobody_from_going_on(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    kept = Measurements(blocked, VERSION)
    kept.keep(SITUATION, FOUND)
    assert kept.find(SITUATION) is None


def test_the_oldest_make_room(kept, monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "_FILES_MAX", 3)
    for threads in range(5):
        kept.keep({"threads": threads}, threads)
        for path in (tmp_path / "cache" / "measured").glob("*"):
            age = path.stat().st_mtime_ns - 10**9
            os.utime(path, ns=(age, age))
    assert [kept.find({"threads": threads}) for threads in range(5)] == [None, None, 2, 3, 4]
