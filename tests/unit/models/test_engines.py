import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.models.engines import (
    Engine,
    Measured,
    answers_digest,
    check_engines,
    choose_engine,
    gain_of,
    may_serve,
    settle_precision,
)
from batchfleet.models.likeness import Likeness
from batchfleet.wire.deployment import BF16, EXACT, FP32, PRECISIONS
from batchfleet.wire.errors import StoreError

PLAIN = Engine("plain", EXACT)
PACKED = Engine("packed", EXACT)
LOOSE = Engine("loose", FP32)
HALF = Engine("bf16", BF16)
HALF_PACKED = Engine("bf16_packed", BF16)
ALIKE = Likeness(3e-7, 1.0)
NEAR = Likeness(4e-3, 0.9998)


def measured(engine, speed, likeness=None, **kwargs):
    """An engine that runs two shapes at a multiple of the plain engine's speed, in four rounds."""
    likeness = likeness or (ALIKE if engine.precision == EXACT else NEAR)
    return Measured(engine, [(10 / speed, 80 / speed)] * 4, likeness, **kwargs)


def test_the_fastest_engine_of_a_precision_is_taken():
    engines = [
        measured(PLAIN, 1),
        measured(PACKED, 1.6),
        measured(HALF, 2),
        measured(HALF_PACKED, 3),
    ]
    exact = choose_engine(engines, EXACT)
    assert (exact.engine, exact.gain, exact.likeness) == (PACKED, pytest.approx(1.6), ALIKE)
    half = choose_engine(engines, BF16)
    assert (half.engine, half.gain) == (HALF_PACKED, pytest.approx(3))


def test_a_small_gain_is_not_worth_another_engine():
    assert choose_engine([measured(PLAIN, 1), measured(PACKED, 1.09)], EXACT).engine == PLAIN
    assert choose_engine([measured(PLAIN, 1), measured(PACKED, 1.11)], EXACT).engine == PACKED


def test_an_engine_that_is_no_faster_serves_where_it_is_the_only_one_of_its_precision():
    verdict = choose_engine([measured(PLAIN, 1), measured(HALF, 0.5)], BF16)
    assert (verdict.engine, verdict.gain) == (HALF, pytest.approx(0.5))


def test_a_disturbed_half_of_the_rounds_decides_nothing():
    steady = [(10, 80)] * 4
    disturbed = [(30, 240), (30, 240), (10, 80), (10, 80)]
    engines = [Measured(PLAIN, disturbed, ALIKE), Measured(PACKED, steady, ALIKE)]
    assert choose_engine(engines, EXACT).engine == PLAIN


def test_a_single_disturbed_round_hides_no_gain():
    rounds = [(5, 40), (90, 700), (5, 40), (5, 40)]
    engines = [measured(PLAIN, 1), Measured(PACKED, rounds, ALIKE)]
    assert choose_engine(engines, EXACT).gain == pytest.approx(2)


def test_shapes_count_alike_however_long_they_run():
    mixed = Measured(PACKED, [(5, 160)] * 4, ALIKE)
    assert gain_of(mixed, measured(PLAIN, 1)) == pytest.approx(1)


def test_an_engine_that_is_wrong_is_not_taken():
    far = measured(PACKED, 3, Likeness(1e-4, 1.0))
    assert choose_engine([measured(PLAIN, 1), far], EXACT).engine == PLAIN
    unlike = measured(HALF_PACKED, 3, Likeness(0.1, 0.99))
    assert choose_engine([measured(PLAIN, 1), measured(HALF, 2), unlike], BF16).engine == HALF


def test_a_looser_precision_takes_what_is_exact_as_well():
    engines = [measured(PLAIN, 1), measured(PACKED, 2), measured(LOOSE, 1.5)]
    assert choose_engine(engines, FP32).engine == PACKED
    assert choose_engine(engines, EXACT).engine == PACKED
    assert may_serve([PLAIN, PACKED, LOOSE, HALF], FP32) == [PLAIN, PACKED, LOOSE]


def test_a_precision_that_the_model_does_not_have_is_refused():
    with pytest.raises(StoreError, match="precision is 'bf16', and here the model has only exact"):
        choose_engine([measured(PLAIN, 1)], BF16)


def test_where_no_engine_is_right_each_reason_is_told():
    engines = [measured(PLAIN, 1), measured(HALF, 2, fault="golden example 0: other shape")]
    engines.append(measured(HALF_PACKED, 3, Likeness(0.5, 0.8)))
    with pytest.raises(StoreError, match=r"bf16: golden example 0.*; bf16_packed: largest diff"):
        choose_engine(engines, BF16)


@pytest.mark.parametrize(
    ("packed", "half", "settled"),
    [(1, 3, BF16), (1.6, 3, BF16), (1, 1.05, EXACT), (2, 2.1, EXACT), (1, 0.5, EXACT)],
)
def test_auto_is_bf16_where_that_is_faster_than_all_that_is_exact(packed, half, settled):
    engines = [measured(PLAIN, 1), measured(PACKED, packed), measured(HALF, half)]
    assert settle_precision(engines) == settled


def test_auto_is_exact_where_bf16_is_wrong_or_absent():
    assert settle_precision([measured(PLAIN, 1)]) == EXACT
    wrong = measured(HALF, 9, Likeness(1.0, 0.2))
    assert settle_precision([measured(PLAIN, 1), wrong]) == EXACT


SPEEDS = st.floats(0.1, 10)


@given(st.lists(SPEEDS, min_size=4, max_size=4), st.sampled_from(PRECISIONS))
def test_the_choice_serves_the_precision_and_is_no_slower_than_its_first(speeds, precision):
    names = (PACKED, LOOSE, HALF, HALF_PACKED)
    engines = [measured(PLAIN, 1), *(measured(*pair) for pair in zip(names, speeds, strict=True))]
    verdict = choose_engine(engines, precision)
    allowed = may_serve([one.engine for one in engines], precision)
    first = next(one for one in engines if one.engine == allowed[0])
    assert verdict.engine in allowed
    assert verdict.gain >= gain_of(first, engines[0])


@pytest.mark.parametrize(
    "engines",
    [["plain"], [HALF], [PLAIN, PLAIN], [PLAIN, Engine("odd", "fp8")], [PLAIN] * 17],
)
def test_what_cannot_be_engines_is_refused(engines):
    with pytest.raises(StoreError):
        check_engines(engines)


def test_a_receipt_names_version_precision_and_engine():
    digests = {
        answers_digest(lineage, precision, engine)
        for lineage in ("a" * 16, "b" * 16)
        for precision in (EXACT, BF16)
        for engine in (PLAIN, PACKED)
    }
    assert len(digests) == 8
    assert {len(digest) for digest in digests} == {16}
