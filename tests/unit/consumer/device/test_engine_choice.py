"""Which engine a version uses, on a clock that only running batches move."""

import numpy as np
import pytest
from support.device_lane import lane_of
from support.manual_clock import ManualClock

from batchfleet.consumer.device.engine_choice import measure_engines, use_best_engine
from batchfleet.consumer.device.opened import VersionFiles
from batchfleet.consumer.device.readiness import get_ready
from batchfleet.models.engines import Engine
from batchfleet.models.manifest import Golden
from batchfleet.models.measurements import Measurements
from batchfleet.models.model import Model, Prepared, Row
from batchfleet.wire.deployment import BF16, EXACT, FP32, Limits
from batchfleet.wire.errors import RequestError, StoreError

LIMITS = Limits(buckets=(8, 16, 32, 64, 128, 256), max_length=256)
PLAIN, PACKED, HALF = Engine("plain", EXACT), Engine("packed", EXACT), Engine("half", BF16)
OUTPUT = {"name": "vector", "datatype": "FP32", "shape": [1, 2], "data": [3.0, 1.0]}
GOLDEN = Golden(inputs={"text": ["abc"]}, outputs=[OUTPUT], tolerance=1e-6)


class Switching(Model):
    """A vector of each text. An engine has a speed, an error, and what it raises."""

    def __init__(self, clock, **engines):
        self.clock = clock
        self.offered = [PLAIN, PACKED, HALF]
        self.table = {"plain": {}, "packed": {"speed": 2}, "half": {"speed": 4, "error": 1e-3}}
        self.table |= engines
        self.name = "plain"
        self.used = []
        self.ran = 0

    def engines(self):
        return self.offered

    def use_engine(self, name):
        self.used.append(name)
        self.name = name
        if "cannot_load" in self.table[name]:
            raise RuntimeError("no room for these weights")

    def preprocess(self, row):
        return Prepared(row["text"], len(row["text"]))

    def predict(self, rows, context):
        engine = self.table[self.name]
        self.ran += 1
        tokens = max(context.lengths) * len(rows)
        self.clock.advance((1 + tokens / 10) * self.table.get("slow", 1) / engine.get("speed", 1))
        if "cannot_run" in engine:
            raise ValueError("this engine runs nothing")
        error = engine.get("error", 0)
        return [{"vector": np.array([len(row), 1 + error], np.float32)} for row in rows]

    def example(self, length):
        return Row({"text": "x" * length})


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def choose(clock):
    def choose(model, precision=EXACT, golden=(GOLDEN,)):
        lane = lane_of(model, clock, limits=LIMITS, precision=precision)
        return use_best_engine(lane, golden, clock)

    return choose


@pytest.mark.parametrize(
    ("precision", "engine", "gain"), [(EXACT, PACKED, 2), (FP32, PACKED, 2), (BF16, HALF, 4)]
)
def test_the_fastest_engine_of_the_precision_is_in_use(choose, clock, precision, engine, gain):
    model = Switching(clock)
    verdict = choose(model, precision)
    assert (verdict.engine, verdict.gain) == (engine, pytest.approx(gain))
    assert model.name == engine.name


def test_engines_of_other_precisions_are_not_run(choose, clock):
    model = Switching(clock)
    choose(model, EXACT)
    assert "half" not in model.used


def test_the_difference_is_that_of_the_worst_answer(choose, clock):
    verdict = choose(Switching(clock), BF16)
    assert verdict.likeness.difference == pytest.approx(1e-3, rel=1e-3)
    assert verdict.likeness.cosine < 1


def test_engines_take_turns_forth_and_back(clock):
    model = Switching(clock)
    lane = lane_of(model, clock, limits=LIMITS)
    measured = measure_engines(lane, model.offered, (), clock)
    assert model.used == ["packed", "half", "packed", "plain"]
    assert [len(one.rounds_ms) for one in measured] == [2, 2, 2]
    assert [len(one.rounds_ms[0]) for one in measured] == [2, 2, 2]


def test_slow_models_take_one_turn_at_load(choose, clock):
    model = Switching(clock, slow=1_000)
    assert choose(model).engine == PACKED
    assert model.used == ["packed", "packed"]  # to measure it, and to use it


def test_those_who_ask_for_it_get_both_turns_of_slow_models(clock):
    model = Switching(clock, slow=1_000)
    lane = lane_of(model, clock, limits=LIMITS)
    measured = measure_engines(lane, model.offered, (), clock)
    assert [len(one.rounds_ms) for one in measured] == [2, 2, 2]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"cannot_load": True}, "no room for these weights"),
        ({"cannot_run": True}, "this engine runs nothing"),
        ({"error": 1e-3}, "golden example 0 is not reproduced"),
    ],
)
def test_an_engine_that_fails_is_left_out_and_told_of(choose, clock, fault, told):
    model = Switching(clock, packed={"speed": 9, **fault})
    assert choose(model).engine == PLAIN
    assert model.name == "plain"
    lane = lane_of(model, clock, limits=LIMITS)
    assert told in measure_engines(lane, [PLAIN, PACKED], [GOLDEN], clock)[1].fault


def test_an_engine_that_differs_on_examples_alone_is_left_out(choose, clock):
    model = Switching(clock, packed={"speed": 9, "error": 1e-3})
    assert choose(model, golden=()).engine == PLAIN


def test_a_version_whose_only_engine_is_wrong_is_refused(choose, clock):
    model = Switching(clock, half={"speed": 4, "error": 9.0})
    with pytest.raises(StoreError, match="half: golden example 0 is not reproduced"):
        choose(model, BF16)


def test_a_plain_engine_that_fails_refuses_the_version(choose, clock):
    with pytest.raises(RequestError, match="runs nothing"):
        choose(Switching(clock, plain={"cannot_run": True}))


def test_a_model_without_engines_serves_exact_and_nothing_else(choose, clock):
    model = Switching(clock)
    model.offered = ()
    assert choose(model) is None
    assert model.ran == 0
    with pytest.raises(StoreError, match="has no engines"):
        choose(model, BF16)


def test_a_single_engine_is_not_measured(choose, clock):
    model = Switching(clock)
    model.offered = [PLAIN, HALF]
    assert choose(model).engine == PLAIN
    assert model.ran == 0


@pytest.mark.parametrize(
    "offered",
    [["plain"], [HALF], [PLAIN, PLAIN], [PLAIN, Engine("odd", "fp8")], [PLAIN] * 17],
)
def test_what_cannot_be_engines_refuses_the_version(choose, clock, offered):
    model = Switching(clock)
    model.offered = offered
    with pytest.raises(StoreError):
        choose(model)


def files_of(cache):
    return VersionFiles(
        model_class=Switching,
        folder=cache,
        parameters={},
        lineage="a" * 16,
        golden=(GOLDEN,),
        measurements=Measurements(cache, {"lineage": "a" * 16}),
    )


def test_the_next_start_measures_nothing_and_still_checks(clock, tmp_path):
    def start(**engines):
        model = Switching(clock, **engines)
        lane = lane_of(model, clock, limits=LIMITS, precision=BF16)
        return get_ready(lane, files_of(tmp_path), 1, clock), model

    first, measured = start()
    second, known = start()
    assert second == first._replace(row_bytes=second.row_bytes), "memory is seen each time"
    assert known.name == "half"
    assert known.used == ["half"]
    assert 0 < known.ran <= 4 < measured.ran
    with pytest.raises(StoreError, match="golden example 0"):
        start(half={"speed": 4, "error": 9.0})


def test_another_number_of_threads_or_precision_is_measured_anew(clock, tmp_path):
    def used(precision, threads):
        model = Switching(clock)
        lane = lane_of(model, clock, limits=LIMITS, precision=precision)
        get_ready(lane, files_of(tmp_path), threads, clock)
        return model.used

    assert len(used(EXACT, 1)) > 1
    assert len(used(BF16, 1)) > 1
    assert len(used(EXACT, 2)) > 1
    assert used(EXACT, 1) == ["packed"]


@pytest.mark.parametrize("kept", [[], {}, {"engine": "gone"}, {"engine": "packed"}, 7])
def test_what_was_kept_and_does_not_fit_is_measured_anew(clock, tmp_path, monkeypatch, kept):
    monkeypatch.setattr(Measurements, "find", lambda *_: kept)
    model = Switching(clock)
    lane = lane_of(model, clock, limits=LIMITS)
    assert get_ready(lane, files_of(tmp_path), 1, clock).verdict.engine == PACKED
    assert len(model.used) > 1
