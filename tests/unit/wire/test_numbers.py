import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.wire.numbers import Range, number_in, shown_value

WHOLE = Range(1, 100)
ANY = Range(-0.5, 3600, whole=False)
NO_NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**400), True, "5", None, Decimal(5), 5j,
              np.float32("nan"), np.bool_(True), np.array([5]), [5], object]  # fmt: skip


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, 101, 1.0, 5.5, np.float64(5), np.int64(0)])
def test_what_is_no_whole_number_in_the_range(value):
    assert WHOLE.fault(value) == "must be a whole number from 1 to 100"


@pytest.mark.parametrize("value", [*NO_NUMBERS, -1, 3601, np.float32(3601)])
def test_what_is_no_number_in_the_range(value):
    assert ANY.fault(value) == "must be a number from -0.5 to 3600"


@pytest.mark.parametrize("value", [1, 100, np.int8(5), np.uint64(100)])
def test_whole_numbers_come_out_as_pythons_own(value):
    assert WHOLE.fault(value) == ""
    assert type(WHOLE.plain(value)) is int


@pytest.mark.parametrize("value", [-0.5, 3600, np.float16(0.5), np.int32(7), Fraction(1, 2)])
def test_numbers_come_out_as_pythons_own(value):
    assert ANY.fault(value) == ""
    assert type(ANY.plain(value)) is float


@pytest.mark.parametrize(
    "text",
    ["", " 5", "5 ", "+5", "1_0", "٣", "²", "0x10", "nan", "inf", "5s", "1e", ".", "9" * 5000],
)
def test_what_spells_no_number(text):
    assert number_in(text) is None
    assert WHOLE.read(text) is None
    assert ANY.read(text) is None


@pytest.mark.parametrize("text", ["0", "101", "5.0", "1e400", "-1e400", "5e0"])
def test_what_spells_another_number(text):
    assert WHOLE.read(text) is None


@given(st.one_of(st.text(), st.integers().map(str), st.floats().map(repr)))
def test_what_is_read_lies_in_the_range(text):
    for limits in (WHOLE, ANY):
        value = limits.read(text)
        assert value is None or limits.fault(value) == ""


@given(st.floats(-0.5, 3600))
def test_what_python_writes_is_read_back(value):
    assert ANY.read(repr(value)) == value


class Hostile:
    def __repr__(self):
        raise KeyError


HOSTILE = {
    "raises": Hostile(),
    "digits": 10**5000,
    "text": "x" * 10_000,
    "list": [1] * 10_000,
    "list of digits": [10**5000],
    "escape": "\x1b[31m",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_value_can_be_shown(value):
    shown = shown_value(value)
    assert shown.isprintable()
    assert len(shown) < 200
