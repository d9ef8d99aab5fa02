"""In which order streams are read: by priority, by age, and nobody starves."""

from batchfleet.consumer.batching.stream_order import StreamOrder, placement_of
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys

KEYS = ModelKeys("bf", "m")
RECORD = VersionRecord(version="1", limits=Limits(buckets=(16, 64), age_cap_ms=500))


def queue(priority, bucket):
    return KEYS.queue("1", priority, bucket)


def order():
    return StreamOrder(KEYS, RECORD, 0.0)


def test_the_name_of_a_stream_says_priority_and_bucket():
    assert placement_of(queue("high", 64)) == (0, 64)
    assert placement_of(queue("low", 16)) == (2, 16)


def test_higher_priorities_come_first():
    levels = [placement_of(stream).level for stream in order().streams(0.0)]
    assert levels == [0, 0, 1, 1, 2, 2]


def test_among_equals_the_oldest_head_comes_first():
    found = order()
    asked = found.streams(100.0)
    found.note(asked, {queue("normal", 16): 90.0, queue("normal", 64): 40.0}, 100.0)
    normal = [s for s in found.streams(100.0) if placement_of(s).level == 1]
    assert normal == [queue("normal", 64), queue("normal", 16)]


def test_streams_behind_the_last_one_read_from_are_not_taken_for_empty():
    found = order()
    asked = found.streams(100.0)
    found.note(asked, {queue("normal", 16): 90.0}, 100.0)
    assert found.streams(100.0).index(queue("normal", 64)) < found.streams(100.0).index(
        queue("normal", 16)
    )


def test_a_stream_that_nobody_has_reached_for_long_comes_first_whatever_its_priority():
    found = order()
    for now_ms in range(0, 2100, 100):
        asked = found.streams(float(now_ms))
        found.note(asked, {queue("high", 16): float(now_ms)}, float(now_ms))
    first = found.streams(2200.0)[0]
    assert placement_of(first).level > 0
