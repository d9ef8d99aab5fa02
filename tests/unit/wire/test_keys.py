"""Names inside keys: made and read in one place."""

import pytest

from batchfleet.wire.keys import PRIORITIES, ModelKeys, Queue, member, read_member, read_queue

KEYS = ModelKeys("bf", "m")


@pytest.mark.parametrize("version", ["1", "q", "2026-11.b"])
@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("edge", [0, 16, 8192])
def test_the_name_of_a_queue_says_what_it_was_made_of(version, priority, edge):
    wanted = Queue(version, priority, edge)
    stream = KEYS.queue(*wanted)
    assert Queue.parse(stream) == read_queue(KEYS, stream) == wanted
    assert read_queue(ModelKeys("bf", "other"), stream) is None


@pytest.mark.parametrize(
    "stream",
    ["", "m", "q:1:high:16", "bf:{m}:q:1:high", "bf:{m}:w:1:high:16", "bf:{m}:q:1:first:16",
     "bf:{m}:q:1:high:-1", "bf:{m}:q:1:high:" + "9" * 19],
)  # fmt: skip
def test_what_is_no_name_of_a_queue(stream):
    with pytest.raises(ValueError):
        Queue.parse(stream)
    assert read_queue(KEYS, stream) is None


@pytest.mark.parametrize("stream", ["bf:{m}:q:1:high:016", "bf:{m}:q:1:high:٣", "x:q:1:high:16"])
def test_a_name_that_no_router_writes_is_no_queue_of_the_model(stream):
    assert read_queue(KEYS, stream) is None


def test_a_member_of_due_says_whose_request_it_is():
    assert read_member(member("acme", "a.r1").encode()) == ("acme", "a.r1")
    for foreign in (b"", b"acme", b"acme:", b":a", b"a:b:c", b"acme:\xff"):
        assert read_member(foreign) is None
