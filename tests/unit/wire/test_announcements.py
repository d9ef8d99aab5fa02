"""What a worker announces, written and read in one place."""

import pytest

from batchfleet.wire.announcements import READY, REFUSED, WorkerAnnouncement
from batchfleet.wire.deployment import Stamp

VERSIONS = {"1": {"state": READY}, "2": {"state": REFUSED, "reason": "no device"}}


@pytest.mark.parametrize("stamp", [None, Stamp(7, "n"), Stamp(7, "")])
def test_what_is_announced_is_what_is_read(stamp):
    said = WorkerAnnouncement(
        versions=VERSIONS, stamp=stamp, stalled="intake m", facts={"host": "h", "pid": "1"}
    )
    fields = {name: value.encode() for name, value in said.to_fields().items()}
    found = WorkerAnnouncement.from_fields(fields)
    assert (found.versions, found.stamp, found.stalled) == (VERSIONS, stamp, "intake m")
    shown = {} if stamp is None else {"epoch": "7"}
    assert found.facts == {**shown, "host": "h", "pid": "1"}
    assert [found.state_of(version) for version in ("1", "2", "3")] == [READY, REFUSED, ""]
    assert [found.reason_of(version) for version in ("1", "2", "3")] == ["", "no device", ""]


@pytest.mark.parametrize(
    "fields",
    [{}, {"lanes": b"["}, {"lanes": b"[]"}, {"lanes": b'{"1": "ready"}'}, {"epoch": b"07"},
     {"lanes": b'{"1": {"state": 1}}'}],
)  # fmt: skip
def test_what_is_ill_formed_says_nothing(fields):
    found = WorkerAnnouncement.from_fields(fields)
    assert (found.state_of("1"), found.stamp, found.stalled) == ("", None, "")
