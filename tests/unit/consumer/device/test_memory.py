"""Batches too large for the device's memory: cut, and cut before they are tried from then on."""

import numpy as np
from support.device_lane import lane_of, prepared, run_together

from batchfleet.consumer.device.memory import MemoryLimit
from batchfleet.models.model import Model, Prepared
from batchfleet.wire.errors import ErrorKind

LENGTH = 10


class Cramped(Model):
    """Has memory for so many padded tokens, and no memory at all for a row called `fat`."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.tried = []

    def preprocess(self, row):
        return Prepared(row["text"], LENGTH)

    def predict(self, rows, context):
        self.tried.append(len(rows))
        if len(rows) * max(context.lengths) > self.tokens or "fat" in rows:
            raise MemoryError
        return [np.float32(len(row)) for row in rows]


def run(lane, rows):
    lane.model.tried.clear()
    return run_together(lane, prepared(lane, {"text": rows}))


def test_the_next_batch_is_cut_before_it_is_tried():
    lane = lane_of(Cramped(tokens=3 * LENGTH))
    rows = [f"r{at}" for at in range(8)]
    assert run(lane, rows) == [2.0] * 8
    assert lane.model.tried == [8, 4, 2, 2, 2, 2]
    assert run(lane, rows) == [2.0] * 8
    assert lane.model.tried == [2, 2, 2, 2]


def test_the_limit_recovers_slowly_once_there_is_room_again():
    lane = lane_of(Cramped(tokens=3 * LENGTH))
    rows = [f"r{at}" for at in range(8)]
    run(lane, rows)
    lane.model.tokens = 8 * LENGTH
    widest = []
    while not widest or widest[-1] < len(rows):
        run(lane, rows)
        widest.append(max(lane.model.tried))
        assert len(widest) < 200
    assert widest[:10] == [2] * 10
    assert widest == sorted(widest)
    assert len(widest) > 50


def test_one_row_that_is_too_large_by_itself_lowers_nothing():
    lane = lane_of(Cramped(tokens=100 * LENGTH))
    rows = [f"r{at}" for at in range(7)]
    results = run(lane, [*rows, "fat"])
    assert results[:7] == [2.0] * 7
    assert results[7].kind is ErrorKind.DEVICE_MEMORY
    run(lane, [*rows, "slim"])
    assert lane.model.tried == [8]


def test_the_limit_counts_padded_tokens():
    limit = MemoryLimit()
    assert limit.allows(1000, 1000)
    limit.halve(8, 10)
    assert limit.allows(4, 10)
    assert limit.allows(1, 1000)
    assert limit.allows(2, 20)
    assert not limit.allows(5, 10)
    limit.halve(4, 10)
    assert not limit.allows(3, 10)
    limit.halve(16, 10)
    assert not limit.allows(3, 10)
