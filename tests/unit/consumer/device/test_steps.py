"""Steps of the device process that need no process: warm-up, places, the book of requests."""

import numpy as np
import pytest
from support.device_lane import lane_of, open_request, prepared
from support.manual_clock import ManualClock

from batchfleet.consumer.device.host import DeviceChoice, read_device
from batchfleet.consumer.device.loaded_models import REQUESTS_MAX, RequestBook
from batchfleet.consumer.device.warming import WARM_UP_MS, plan_points, warm_up
from batchfleet.models.model import Model, Row
from batchfleet.wire.deployment import Limits
from batchfleet.wire.errors import ErrorKind, ProtocolError, RequestError, SettingsError
from batchfleet.wire.signature import Signature, TensorSpec


class Timed(Model):
    """A batch takes `base_ms` and a millisecond a row, on a clock that stands still otherwise."""

    def __init__(self, clock, base_ms):
        self.clock = clock
        self.base_ms = base_ms

    def preprocess(self, row):
        return int(row["text"])

    def predict(self, rows, context):  # noqa: ARG002  the signature of Model
        self.clock.advance(self.base_ms + len(rows))
        return rows

    def example(self, length):
        return Row({"text": str(length)})


def limited_lane(model, **limits):
    return lane_of(model, limits=Limits(**limits))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cpu", DeviceChoice(device="cpu")),
        ("cpu:0-1", DeviceChoice(device="cpu", cores=frozenset({0, 1}))),
        ("cpu:0,2-3", DeviceChoice(device="cpu", cores=frozenset({0, 2, 3}))),
        ("cuda:1", DeviceChoice(device="cuda:1")),
    ],
)
def test_a_device_setting_names_device_and_cores(text, place):
    assert read_device(text) == place


@pytest.mark.parametrize(
    "text", ["", "cpu:", "cpu:1-0", "cpu:a", "cpu:0-", "cpu:-1", "cuda", "cuda:", "cuda:x", "tpu:0"]
)
def test_other_device_settings_are_refused(text):
    with pytest.raises(SettingsError):
        read_device(text)


def test_points_without_a_length_rule_are_powers_of_two_and_the_largest_batch():
    points = plan_points(Limits(max_batch_size=12, max_batch_tokens=1000))
    assert points == [(1, 1), (2, 1), (4, 1), (8, 1), (12, 1)]
    assert plan_points(Limits()) == [(rows, 1) for rows in (1, 2, 4, 8, 16, 32)]


def test_points_stay_inside_the_limits_and_every_length_has_one_row():
    limits = Limits(
        buckets=(16, 64, 512, 4096), max_length=512, max_batch_size=32, max_batch_tokens=256
    )
    points = plan_points(limits)
    assert {length for _, length in points} == {16, 64, 512}
    assert all(rows == 1 or rows * length <= 256 for rows, length in points)
    assert points[:3] == [(1, 16), (1, 64), (1, 512)]
    assert len(set(points)) == len(points)


def test_the_curve_is_the_time_of_each_batch():
    clock = ManualClock()
    curve = warm_up(limited_lane(Timed(clock, 10), max_batch_size=4, buckets=(8,)), clock)
    assert curve == [(1, 8, 11.0), (2, 8, 12.0), (4, 8, 14.0)]


@pytest.mark.parametrize("base_ms", [50, 400, 5000])
def test_warm_up_ends_in_time_and_measures_at_least_one_point(base_ms):
    clock = ManualClock(monotonic_ms=0.0)
    limits = {"buckets": tuple(range(8, 512, 8)), "max_length": 512, "max_batch_tokens": 10_000}
    curve = warm_up(limited_lane(Timed(clock, base_ms), **limits), clock)
    assert curve
    # A batch under way is not cut off; the first one also runs once more, to check its answer.
    assert clock.monotonic_ms() <= WARM_UP_MS + 2 * (base_ms + 32)


def test_a_model_without_examples_has_no_curve():
    assert warm_up(limited_lane(Model()), ManualClock()) == []


def test_examples_that_are_too_long_are_passed_over_and_broken_ones_are_not():
    clock = ManualClock()

    class Overshooting(Timed):
        def preprocess(self, row):
            return int(row["text"]) + 4

    curve = warm_up(
        limited_lane(Overshooting(clock, 1), buckets=(8, 16), max_length=16, max_batch_size=1),
        clock,
    )
    assert curve == [(1, 12, 2.0)]

    class Broken(Timed):
        def preprocess(self, row):
            raise ValueError(row["text"])

    with pytest.raises(RequestError) as caught:
        warm_up(limited_lane(Broken(clock, 1)), clock)
    assert caught.value.kind is ErrorKind.BAD_INPUTS


def waiting(number, lane=1, rows=2):
    return open_request(number, [f"{number}.{at}" for at in range(rows)], lane=lane)


def test_the_book_hands_each_row_out_once_and_to_its_own_lane():
    book = RequestBook()
    book.expect(1, [5])
    assert book.take(1, [(5, 0)]) == []
    assert book.add(waiting(5))
    assert book.take(2, [(5, 0)]) == []
    assert [row.place for row in book.take(1, [(5, 1), (5, 1), (5, 2), (5, -1)])] == [1]
    assert [row.place for row in book.take(1, [(5, 0), (5, 1)])] == [0]


def test_the_book_takes_no_request_that_was_dropped_or_whose_lane_is_gone():
    book = RequestBook()
    book.expect(1, [5, 6])
    book.expect(2, [7])
    assert book.drop([5, 9]) == [5]
    assert not book.add(waiting(5))
    kept = waiting(6)
    assert book.add(kept)
    book.drop_lane(1)
    assert kept.dropped
    assert book.take(1, [(6, 0)]) == []
    assert book.add(waiting(7, lane=2))


def test_the_book_is_bounded():
    book = RequestBook()
    book.expect(1, range(REQUESTS_MAX))
    with pytest.raises(ProtocolError):
        book.expect(1, [REQUESTS_MAX])


def any_size(**of):
    return Signature(inputs=(TensorSpec(name="pixels", **{"datatype": "FP32", **of}),))


PICTURES = any_size(shape=(-1, 28, 28))


class Arrays(Model):
    def preprocess(self, row):
        return {"x": np.asarray(next(iter(row.values())))}


@pytest.mark.parametrize(
    ("record", "stack", "length"),
    [
        ({"signature": PICTURES}, False, 1),
        ({"signature": PICTURES}, True, 28),
        ({"signature": PICTURES, "bytes_per_token": 4.0}, False, 28),
        ({}, False, 28),
        ({"signature": any_size(shape=(-1, 28, -1))}, False, 28),
        ({"signature": any_size(datatype="BYTES")}, False, 28),
    ],
)
def test_rows_of_a_fixed_shape_have_no_length(record, stack, length):
    model = Arrays()
    model.stack = stack
    columns = {"pixels": np.zeros((2, 28, 28), np.float32)}
    assert prepared(lane_of(model, **record), columns).lengths == [length, length]
